package devicetainteviction

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/controller"
)

// world is what decides about a pod.
type world struct {
	claims controller.Client[*resourcev1.ResourceClaim]
	slices controller.Client[*resourcev1.ResourceSlice]
	rules  controller.Client[*resourcev1.DeviceTaintRule]
}

func newWorld(k *controller.Kit) world {
	return world{controller.For(k, dra.ResourceClaims), controller.For(k, dra.ResourceSlices), controller.For(k, dra.DeviceTaintRules)}
}

// eviction is when a pod has to go, and because of which rules.
type eviction struct {
	when  time.Time
	rules map[types.UID]bool
}

// add notes one more reason, which is a rule if uid is not empty.
func (e *eviction) add(when time.Time, uid types.UID) *eviction {
	if e == nil {
		e = &eviction{when: when, rules: map[types.UID]bool{}}
	}
	if when.Before(e.when) {
		e.when = when
	}
	if uid != "" {
		e.rules[uid] = true
	}
	return e
}

// eviction is when a pod has to go because of the devices that it uses; nil if never.
// supposed, if not nil, is a rule that is looked at as if it evicted.
func (w world) eviction(p *corev1.Pod, supposed *resourcev1.DeviceTaintRule) *eviction {
	if p.Spec.NodeName == "" {
		return nil
	}
	var e *eviction
	for _, name := range core.ResourceClaimNames(p) {
		c, ok := w.claims.Get(p.Namespace, name)
		if !ok || c.Status.Allocation == nil || !dra.Reserved(c, p.UID) {
			continue
		}
		for i := range c.Status.Allocation.Devices.Results {
			d := &c.Status.Allocation.Devices.Results[i]
			for _, t := range w.taints(d, supposed) {
				if when, limited := until(d.Tolerations, t.taint); limited {
					e = e.add(when, t.rule)
				}
			}
		}
	}
	return e
}

// origin is a taint with the rule that it comes from, if it does.
type origin struct {
	taint *resourcev1.DeviceTaint
	rule  types.UID
}

// taints are the NoExecute taints of a device.
func (w world) taints(d *resourcev1.DeviceRequestAllocationResult, supposed *resourcev1.DeviceTaintRule) []origin {
	var list []origin
	for _, s := range w.pool(d.Driver, d.Pool) {
		for i := range s.Spec.Devices {
			if s.Spec.Devices[i].Name != d.Device {
				continue
			}
			for j := range s.Spec.Devices[i].Taints {
				if t := &s.Spec.Devices[i].Taints[j]; t.Effect == resourcev1.DeviceTaintEffectNoExecute {
					list = append(list, origin{taint: t})
				}
			}
		}
	}
	for _, r := range w.rules.List("", nil) {
		if supposed != nil && r.UID == supposed.UID {
			r = supposed
		}
		if r.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute && dra.Selects(r.Spec.DeviceSelector, d.Driver, d.Pool, d.Device) {
			list = append(list, origin{&r.Spec.Taint, r.UID})
		}
	}
	return list
}

// pool are the slices of a pool that count: those of its newest generation.
func (w world) pool(driver, name string) []*resourcev1.ResourceSlice {
	var newest []*resourcev1.ResourceSlice
	for _, s := range w.slices.ByIndex(dra.IndexPool, driver+"/"+name) {
		switch {
		case len(newest) == 0 || s.Spec.Pool.Generation > newest[0].Spec.Pool.Generation:
			newest = []*resourcev1.ResourceSlice{s}
		case s.Spec.Pool.Generation == newest[0].Spec.Pool.Generation:
			newest = append(newest, s)
		}
	}
	return newest
}

// until is when a taint is tolerated no longer; limited is false if it is for ever.
func until(tolerations []resourcev1.DeviceToleration, t *resourcev1.DeviceTaint) (when time.Time, limited bool) {
	var added metav1.Time
	if t.TimeAdded != nil {
		added = *t.TimeAdded
	}
	least, tolerated := int64(0), false
	for i := range tolerations {
		o := &tolerations[i]
		if o.Effect != resourcev1.DeviceTaintEffectNoExecute || !dra.Tolerates(o, t) {
			continue
		}
		if o.TolerationSeconds == nil {
			return time.Time{}, false
		}
		if s := max(0, *o.TolerationSeconds); !tolerated || s < least {
			least, tolerated = s, true
		}
	}
	return added.Add(time.Duration(least) * time.Second), true
}

// selects reports whether a rule selects a device that a claim has.
func selects(r *resourcev1.DeviceTaintRule, c *resourcev1.ResourceClaim) bool {
	return selected(r, c) > 0
}

// selected counts the devices of a claim that a rule selects.
func selected(r *resourcev1.DeviceTaintRule, c *resourcev1.ResourceClaim) (n int) {
	if c.Status.Allocation == nil {
		return 0
	}
	for i := range c.Status.Allocation.Devices.Results {
		if d := &c.Status.Allocation.Devices.Results[i]; dra.Selects(r.Spec.DeviceSelector, d.Driver, d.Pool, d.Device) {
			n++
		}
	}
	return n
}
