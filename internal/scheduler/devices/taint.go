package devices

import (
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
)

// taint finds out anew how all devices are tainted.
func (v *Inventory) taint() {
	for _, s := range v.bySlice {
		for _, d := range s.devices {
			v.taintDevice(d)
		}
	}
}

// taintDevice finds out how a device is tainted. Taints without an effect, or with one
// that is not known, do not count.
func (v *Inventory) taintDevice(d *device) {
	d.taints = nil
	for i := range d.Taints {
		if effective(&d.Taints[i]) {
			d.taints = append(d.taints, d.Taints[i])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.rules)) {
		r := v.rules[name]
		if effective(&r.Spec.Taint) && selects(r.Spec.DeviceSelector, d.id) {
			d.taints = append(d.taints, r.Spec.Taint)
		}
	}
}

func effective(t *resourcev1.DeviceTaint) bool {
	return t.Effect == resourcev1.DeviceTaintEffectNoSchedule || t.Effect == resourcev1.DeviceTaintEffectNoExecute
}

// selects reports whether a rule is about a device: about none without a selector,
// about all with an empty one.
func selects(s *resourcev1.DeviceTaintSelector, id ID) bool {
	is := func(want *string, have string) bool { return want == nil || *want == have }
	return s != nil && is(s.Driver, id.Driver) && is(s.Pool, id.Pool) && is(s.Device, id.Device)
}

// tolerated reports whether none of the taints of a device keeps a request off.
func (d *device) tolerated(by []resourcev1.DeviceToleration) bool {
	for i := range d.taints {
		if !slices.ContainsFunc(by, func(t resourcev1.DeviceToleration) bool { return Tolerates(&t, &d.taints[i]) }) {
			return false
		}
	}
	return true
}

// Tolerates reports whether a toleration is about a taint.
func Tolerates(by *resourcev1.DeviceToleration, t *resourcev1.DeviceTaint) bool {
	switch {
	case by.Effect != "" && by.Effect != t.Effect:
		return false
	case by.Key != "" && by.Key != t.Key:
		return false
	case by.Operator == "" || by.Operator == resourcev1.DeviceTolerationOpEqual:
		return by.Value == t.Value
	}
	return by.Operator == resourcev1.DeviceTolerationOpExists
}
