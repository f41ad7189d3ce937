package dra

import (
	"fmt"
	"math"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/resource"
)

// maxValues is how many amounts a policy may list.
const maxValues = 10

// validateCapacity checks how a capacity is given out, if it is given out in parts.
func validateCapacity(errs *resource.Errors, c *resourcev1.DeviceCapacity, shared bool) {
	p := c.RequestPolicy
	switch {
	case p == nil:
	case !shared:
		errs.Forbidden("requestPolicy", "allowMultipleAllocations must be true")
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		errs.Forbidden("requestPolicy", `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)
	case len(p.ValidValues) > 0 && p.Default == nil:
		errs.Required("requestPolicy.default", "required when validValues is defined")
	case len(p.ValidValues) > 0:
		validateValues(errs, p, c.Value)
	case p.ValidRange != nil && p.Default == nil:
		errs.Required("requestPolicy.default", "required when validRange is defined")
	case p.ValidRange != nil:
		validateRange(errs.At("requestPolicy.validRange"), p.ValidRange, *p.Default, c.Value)
	}
}

// validateValues checks the amounts that may be asked for, of which one is taken if
// nothing is asked.
func validateValues(errs *resource.Errors, p *resourcev1.CapacityRequestPolicy, all apiresource.Quantity) {
	const path = "requestPolicy.validValues"
	values := p.ValidValues
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			errs.Invalid(fmt.Sprintf("%s[%d]", path, i), values[i].String(), "values must be sorted in ascending order")
		}
	}
	if atMost(errs, path, len(values), maxValues) {
		for i := range values {
			if values[i].Cmp(all) > 0 {
				errs.Invalid(fmt.Sprintf("%s[%d]", path, i), values[i].String(), "option is larger than capacity value: "+all.String())
			}
		}
		unique(errs, path, values, func(q *apiresource.Quantity) string { return q.AsDec().String() })
	}
	if !slices.ContainsFunc(values, func(q apiresource.Quantity) bool { return q.Cmp(*p.Default) == 0 }) {
		errs.Invalid(path, p.Default.String(), "default value is not valid according to the requestPolicy")
	}
}

// validateRange checks the range of what may be asked for; usual is taken if nothing is
// asked, all is what there is.
func validateRange(errs *resource.Errors, r *resourcev1.CapacityRequestPolicyRange, usual, all apiresource.Quantity) {
	if r.Min == nil {
		errs.Required("min", "required when validRange is defined")
		return
	}
	if r.Min.Cmp(all) > 0 {
		errs.Invalid("min", r.Min.String(), "min is larger than capacity value: "+all.String())
	}
	if usual.Cmp(*r.Min) < 0 {
		errs.Invalid("default", usual.String(), "default is less than min: "+r.Min.String())
	}
	if r.Max != nil {
		if r.Min.Cmp(*r.Max) > 0 {
			errs.Invalid("max", r.Min.String(), "min is larger than max: "+r.Max.String())
		}
		if r.Max.Cmp(all) > 0 {
			errs.Invalid("max", r.Max.String(), "max is larger than capacity value: "+all.String())
		}
		if usual.Cmp(*r.Max) > 0 {
			errs.Invalid("default", usual.String(), "default is more than max: "+r.Max.String())
		}
	}
	amounts := []amount{{"default", &usual}, {"min", r.Min}, {"max", r.Max}, {"step", r.Step}}
	amounts = slices.DeleteFunc(amounts, func(a amount) bool { return a.q == nil })
	milli := slices.ContainsFunc(amounts, amount.fractional)
	if milli && !countable(errs, amounts, milli) || r.Step == nil {
		return
	}
	if r.Step.Sign() <= 0 {
		errs.Invalid("step", r.Step.String(), "must be greater than zero")
		return
	}
	first := r.Min.DeepCopy()
	first.Add(*r.Step)
	if first.Cmp(all) > 0 {
		errs.Invalid("step", r.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s", first.String(), all.String()))
	}
	if !milli && !countable(errs, amounts, milli) {
		return
	}
	validateStep(errs, &usual, r, milli)
	if r.Max != nil {
		validateStep(errs, r.Max, r, milli)
	}
}

// validateStep refuses what cannot be reached from the lower end in whole steps. All
// amounts must be countable.
func validateStep(errs *resource.Errors, q *apiresource.Quantity, r *resourcev1.CapacityRequestPolicyRange, milli bool) {
	number := (*apiresource.Quantity).Value
	if milli {
		number = (*apiresource.Quantity).MilliValue
	}
	if (number(q)-number(r.Min))%number(r.Step) != 0 {
		errs.Invalid("step", q.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String()))
	}
}

// amount is a quantity of a range, with its field.
type amount struct {
	field string
	q     *apiresource.Quantity
}

// fractional reports whether the amount is not a whole number.
func (a amount) fractional() bool {
	whole := a.q.DeepCopy()
	return !whole.RoundUp(0)
}

// countable refuses amounts that 64 bits do not hold, in thousandths if milli is set.
func countable(errs *resource.Errors, amounts []amount, milli bool) bool {
	before := errs.Len()
	for _, a := range amounts {
		switch {
		case milli:
			if a.q.Cmp(*apiresource.NewMilliQuantity(a.q.MilliValue(), a.q.Format)) != 0 {
				errs.Invalid(a.field, a.q.String(), "value cannot be represented as a milli value")
			}
		case a.q.Sign() < 0:
			errs.Invalid(a.field, a.q.String(), "must be greater than or equal to 0")
		case a.q.CmpInt64(math.MaxInt64) > 0:
			errs.Invalid(a.field, a.q.String(), "must not be larger than 9223372036854775807")
		}
	}
	return errs.Len() == before
}
