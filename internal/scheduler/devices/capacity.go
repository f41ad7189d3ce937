package devices

import (
	"math"

	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
)

// portion is how much of a capacity a request gets.
type portion struct {
	name   string // with the domain
	amount apiresource.Quantity
}

// portions appends how much of each capacity of a device a request gets: what it asks
// for, rounded up as the device wants it, and otherwise the default, or all. It
// reports false if the device has not what is asked for, or not left.
func (r *request) portions(d *device, list []portion) ([]portion, bool) {
	for name := range r.capacity {
		if _, ok := d.capacity(string(name)); !ok {
			return nil, false
		}
	}
	for name, has := range d.Capacity {
		full := qualified(d.id.Driver, string(name))
		amount, ok := portionOf(&has, r.asks(d, full))
		if !ok {
			return nil, false
		}
		total := amount.DeepCopy()
		if d.multiple && !r.admin {
			if have := d.use.consumed[full]; have != nil {
				total.Add(*have)
			}
		}
		if total.Cmp(has.Value) > 0 {
			return nil, false
		}
		list = append(list, portion{full, amount})
	}
	return list, true
}

// capacity finds a capacity by a name with the domain or without.
func (d *device) capacity(name string) (c resourcev1.DeviceCapacity, ok bool) {
	full := qualified(d.id.Driver, name)
	for have, c := range d.Capacity {
		if qualified(d.id.Driver, string(have)) == full {
			return c, true
		}
	}
	return c, false
}

// asks is what a request asks of a capacity; nil: it does not say.
func (r *request) asks(d *device, full string) *apiresource.Quantity {
	for name, q := range r.capacity {
		if qualified(d.id.Driver, string(name)) == full {
			return &q
		}
	}
	return nil
}

// portionOf is what a request gets that asks for so much; false: that cannot be.
func portionOf(c *resourcev1.DeviceCapacity, asked *apiresource.Quantity) (apiresource.Quantity, bool) {
	policy := c.RequestPolicy
	switch {
	case asked == nil && policy != nil && policy.Default != nil:
		return policy.Default.DeepCopy(), true
	case asked == nil:
		return c.Value.DeepCopy(), true
	case asked.Sign() < 0:
		return apiresource.Quantity{}, false
	case policy == nil:
		return asked.DeepCopy(), true
	case len(policy.ValidValues) > 0:
		for i := range policy.ValidValues { // the smallest first
			if policy.ValidValues[i].Cmp(*asked) >= 0 {
				return policy.ValidValues[i].DeepCopy(), true
			}
		}
		return apiresource.Quantity{}, false
	case policy.ValidRange != nil:
		return inRange(policy.ValidRange, asked)
	}
	return asked.DeepCopy(), true
}

// inRange rounds up to the next amount of a range: its least, or a whole number of
// steps above that.
func inRange(r *resourcev1.CapacityRequestPolicyRange, asked *apiresource.Quantity) (apiresource.Quantity, bool) {
	got := asked.DeepCopy()
	least := apiresource.Quantity{}
	if r.Min != nil {
		least = *r.Min
	}
	if got.Cmp(least) < 0 {
		got = least.DeepCopy()
	} else if r.Step != nil && r.Step.Value() > 0 {
		above, step := got.Value()-least.Value(), r.Step.Value()
		if rest := above % step; rest != 0 {
			if got.Value() > math.MaxInt64-step {
				return got, false
			}
			got.Set(got.Value() + step - rest)
		}
	}
	return got, r.Max == nil || got.Cmp(*r.Max) <= 0
}
