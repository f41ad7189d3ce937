package devices

import (
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kemudi/kemudi/internal/api/dra"
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
		if effective(&r.Spec.Taint) && dra.Selects(r.Spec.DeviceSelector, d.id.Driver, d.id.Pool, d.id.Device) {
			d.taints = append(d.taints, r.Spec.Taint)
		}
	}
}

func effective(t *resourcev1.DeviceTaint) bool {
	return t.Effect == resourcev1.DeviceTaintEffectNoSchedule || t.Effect == resourcev1.DeviceTaintEffectNoExecute
}

// tolerated reports whether none of the taints of a device keeps a request off.
func (d *device) tolerated(by []resourcev1.DeviceToleration) bool {
	for i := range d.taints {
		if !slices.ContainsFunc(by, func(t resourcev1.DeviceToleration) bool { return dra.Tolerates(&t, &d.taints[i]) }) {
			return false
		}
	}
	return true
}
