package devices

import (
	"errors"
	"fmt"
	"math"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
)

// Refusal is why claims cannot be allocated as things are.
type Refusal string

// Error is the reason.
func (r Refusal) Error() string { return string(r) }

// Plan is what claims that are allocated together ask for. It is good until the
// inventory changes.
type Plan struct {
	claims []claim
	simple bool // no claim has constraints
}

// claim is one claim of a plan.
type claim struct {
	obj         *resourcev1.ResourceClaim
	requests    []request
	constraints []constraint
}

// request asks for devices: one that is exact, or one of several of which the first
// that can be had is taken.
type request struct {
	name         string // with the request that it is part of
	alternatives []request

	class       *resourcev1.DeviceClass
	selectors   []selector
	all         bool
	count       int
	admin       bool
	tolerations []resourcev1.DeviceToleration
	capacity    map[resourcev1.QualifiedName]apiresource.Quantity
	bound       []int // constraints of the claim that are about it
	index       int   // among all exact requests and alternatives of the plan
}

// selector is an expression of a request, or of its class.
type selector struct {
	*expression
	of    string // "class c" or "claim ns/c"
	index int
}

// exact is what both forms of a request have.
type exact struct {
	class       string
	selectors   []resourcev1.DeviceSelector
	mode        resourcev1.DeviceAllocationMode
	count       int64
	admin       *bool
	tolerations []resourcev1.DeviceToleration
	capacity    *resourcev1.CapacityRequirements
}

// Plan reads what claims ask for. A Refusal says that nothing can serve them as things
// are; any other error, that something is wrong with them or their classes.
func (v *Inventory) Plan(claims []*resourcev1.ResourceClaim) (*Plan, error) {
	v.settle()
	p := &Plan{claims: make([]claim, len(claims)), simple: true}
	n := 0
	for i, obj := range claims {
		c := &p.claims[i]
		c.obj = obj
		for j := range obj.Spec.Devices.Constraints {
			made, err := newConstraint(&obj.Spec.Devices.Constraints[j])
			if err != nil {
				return nil, fmt.Errorf("claim %s, constraint #%d: %w", nameOf(obj), j, err)
			}
			c.constraints = append(c.constraints, made)
			p.simple = false
		}
		c.requests = make([]request, len(obj.Spec.Devices.Requests))
		least := 0
		for j := range obj.Spec.Devices.Requests {
			few, err := v.read(c, j, &n)
			if err != nil {
				return nil, err
			}
			if few > resourcev1.AllocationResultsMaxSize-least {
				return nil, fmt.Errorf("claim %s, request %s: adding %d devices exceeds the claim limit of %d, with %d already accounted for",
					nameOf(obj), obj.Spec.Devices.Requests[j].Name, few, resourcev1.AllocationResultsMaxSize, least)
			}
			least += few
		}
	}
	return p, nil
}

func nameOf(c *resourcev1.ResourceClaim) string { return c.Namespace + "/" + c.Name }

// read reads a request of a claim, and returns how many devices it needs at least.
// Exact requests are numbered by n.
func (v *Inventory) read(c *claim, i int, n *int) (least int, err error) {
	from, to := &c.obj.Spec.Devices.Requests[i], &c.requests[i]
	to.name = from.Name
	switch {
	case from.Exactly != nil:
		x := from.Exactly
		err = v.readExact(c, to, from.Name, exact{x.DeviceClassName, x.Selectors, x.AllocationMode, x.Count, x.AdminAccess, x.Tolerations, x.Capacity})
		to.index = *n
		*n++
		return to.count, err
	case len(from.FirstAvailable) > 0:
		to.alternatives = make([]request, len(from.FirstAvailable))
		least = math.MaxInt
		for j := range from.FirstAvailable {
			x, sub := &from.FirstAvailable[j], &to.alternatives[j]
			sub.name, sub.index = from.Name+"/"+x.Name, *n
			*n++
			if err := v.readExact(c, sub, from.Name, exact{x.DeviceClassName, x.Selectors, x.AllocationMode, x.Count, nil, x.Tolerations, x.Capacity}); err != nil {
				return 0, err
			}
			least = min(least, sub.count)
		}
		return least, nil
	}
	return 0, Refusal(fmt.Sprintf("resource claim %s, request %s: unknown request type", nameOf(c.obj), from.Name))
}

// readExact reads what one form of a request says; main is the name of the whole request.
func (v *Inventory) readExact(c *claim, r *request, main string, x exact) error {
	if x.class == "" {
		return fmt.Errorf("request %s: unsupported request type", r.name)
	}
	r.class = v.classes[x.class]
	if r.class == nil {
		return Refusal(fmt.Sprintf("request %s: device class %s does not exist", r.name, x.class))
	}
	for _, list := range []struct {
		of        string
		selectors []resourcev1.DeviceSelector
	}{{"class " + x.class, r.class.Spec.Selectors}, {"claim " + nameOf(c.obj), x.selectors}} {
		for i := range list.selectors {
			cel := list.selectors[i].CEL
			if cel == nil {
				return fmt.Errorf("%s, request %s, selector #%d: CEL expression empty (unsupported selector type?)", list.of, r.name, i)
			}
			e := v.expression(cel.Expression)
			if e.err != nil {
				return fmt.Errorf("%s: selector #%d: CEL compile error: %w", list.of, i, e.err)
			}
			r.selectors = append(r.selectors, selector{e, list.of, i})
		}
	}
	switch x.mode {
	case resourcev1.DeviceAllocationModeAll:
		r.all, r.count = true, 1
	case resourcev1.DeviceAllocationModeExactCount, "":
		r.count = int(max(x.count, 1))
	default:
		return fmt.Errorf("claim %s, request %s: unsupported count mode %s", nameOf(c.obj), r.name, x.mode)
	}
	r.admin = x.admin != nil && *x.admin
	r.tolerations = x.tolerations
	if x.capacity != nil {
		r.capacity = x.capacity.Requests
	}
	for i := range c.constraints {
		if about := c.constraints[i].requests; len(about) == 0 || slices.Contains(about, main) || slices.Contains(about, r.name) {
			r.bound = append(r.bound, i)
		}
	}
	return nil
}

var errEmptyConstraint = errors.New("empty constraint (unsupported constraint type?)")
