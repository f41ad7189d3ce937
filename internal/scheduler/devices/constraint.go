package devices

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
)

// constraint is what the devices of a claim must have in common, or must not have in
// common. A device without the attribute never will do.
type constraint struct {
	requests  []string // that it is about; none: all
	attribute string
	distinct  bool

	values []value // of the devices that the search has chosen so far (D1)
}

// value is that of an attribute; values of different types differ.
type value struct {
	kind byte
	text string
	n    int64
}

func newConstraint(c *resourcev1.DeviceConstraint) (constraint, error) {
	switch {
	case c.MatchAttribute != nil:
		return constraint{requests: c.Requests, attribute: string(*c.MatchAttribute)}, nil
	case c.DistinctAttribute != nil:
		return constraint{requests: c.Requests, attribute: string(*c.DistinctAttribute), distinct: true}, nil
	}
	return constraint{}, errEmptyConstraint
}

// add takes a device in, if it may be with the others.
func (c *constraint) add(d *device) bool {
	v, ok := d.attribute(c.attribute)
	if !ok {
		return false
	}
	if c.distinct {
		for _, other := range c.values {
			if v == other {
				return false
			}
		}
	} else if len(c.values) > 0 && v != c.values[0] {
		return false
	}
	c.values = append(c.values, v)
	return true
}

// remove takes out the device that was taken in last.
func (c *constraint) remove() { c.values = c.values[:len(c.values)-1] }

// attribute returns what a device says under a name with its domain. A name without one
// is the driver's.
func (d *device) attribute(name string) (value, bool) {
	a, ok := d.Attributes[resourcev1.QualifiedName(name)]
	if !ok {
		if domain, short, cut := strings.Cut(name, "/"); cut && domain == d.id.Driver {
			a, ok = d.Attributes[resourcev1.QualifiedName(short)]
		}
	}
	switch {
	case !ok:
	case a.StringValue != nil:
		return value{kind: 's', text: *a.StringValue}, true
	case a.IntValue != nil:
		return value{kind: 'i', n: *a.IntValue}, true
	case a.VersionValue != nil: // in its shortest form, so equal ones are written alike
		return value{kind: 'v', text: *a.VersionValue}, true
	case a.BoolValue != nil && *a.BoolValue:
		return value{kind: 'b', n: 1}, true
	case a.BoolValue != nil:
		return value{kind: 'b'}, true
	}
	return value{}, false
}
