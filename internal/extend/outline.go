package extend

import (
	"slices"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// outline is a schema's fields, and which of its rarer parts there are at all. It tells when the library,
// which goes through a value once for each part, has nothing to do.
type outline struct {
	fields map[string]*outline
	rest   *outline // of other fields; nil: there are none
	items  *outline
	other  bool // what it may hold is not in the schema alone

	// At it, or below:
	defaults bool
	embedded bool // objects with metadata of their own
	keyed    bool // lists that are sets or maps
}

func newOutline(s *structural.Structural) *outline {
	if s == nil {
		return &outline{other: true}
	}
	o := &outline{
		other:    s.XPreserveUnknownFields || s.XEmbeddedResource,
		defaults: s.Default.Object != nil, embedded: s.XEmbeddedResource,
		keyed: s.XListType != nil && *s.XListType != "atomic",
	}
	if len(s.Properties) > 0 {
		o.fields = make(map[string]*outline, len(s.Properties))
	}
	for name := range s.Properties {
		field := s.Properties[name]
		o.fields[name] = o.holds(&field)
	}
	if s.Items != nil {
		o.items = o.holds(s.Items)
	}
	if more := s.AdditionalProperties; more != nil && more.Structural != nil {
		o.rest = o.holds(more.Structural)
	}
	return o
}

// holds is the outline of a schema within this one, which has what that has.
func (o *outline) holds(s *structural.Structural) *outline {
	within := newOutline(s)
	o.defaults = o.defaults || within.defaults
	o.embedded = o.embedded || within.embedded
	o.keyed = o.keyed || within.keyed
	return within
}

// knows reports that a schema has all fields of a value, and whether one of them is null; false: ask the library.
func (o *outline) knows(v any) (known, nulls bool) {
	switch v := v.(type) {
	case nil:
		return true, true
	case map[string]any:
		if o.other {
			return false, false
		}
		for name, value := range v {
			field, there := o.fields[name]
			if !there {
				field = o.rest
			}
			if field == nil {
				return false, false
			}
			known, null := field.knows(value)
			if !known {
				return false, false
			}
			nulls = nulls || null
		}
	case []any:
		if o.items == nil {
			return false, false
		}
		unknown := slices.ContainsFunc(v, func(e any) bool {
			known, null := o.items.knows(e)
			nulls = nulls || null
			return !known
		})
		return !unknown, nulls
	}
	return true, nulls
}
