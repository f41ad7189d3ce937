// Package volumeexpand has volumes grow when their claims ask for more. Directories
// of a node have no size of their own: they grow by saying so. All others are for the
// driver's controller, whose turn it is said to be.
package volumeexpand

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Controller expands volumes.
var Controller = controller.New(controller.Spec[*corev1.PersistentVolumeClaim]{
	Name:   "expand-controller",
	Source: "volume_expand",
	For:    core.PersistentVolumeClaims,
	Reads:  []*resource.Def{core.PersistentVolumes.Def},
	Writes: []controller.Permission{controller.Update(core.PersistentVolumes.Def), controller.UpdateStatus(core.PersistentVolumeClaims.Def)},
	Setup: func(k *controller.Kit) controller.Reconciler[*corev1.PersistentVolumeClaim] {
		return reconciler{k.Events, controller.For(k, core.PersistentVolumeClaims), controller.For(k, core.PersistentVolumes)}
	},
})

type reconciler struct {
	events  client.EventSink
	claims  controller.Client[*corev1.PersistentVolumeClaim]
	volumes controller.Client[*corev1.PersistentVolume]
}

// Reconcile looks whether a bound claim asks for more than it has.
func (r reconciler) Reconcile(ctx context.Context, c *corev1.PersistentVolumeClaim) (controller.Next, error) {
	want, has := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
	if c.Status.Phase != corev1.ClaimBound || want.Cmp(has) <= 0 {
		return controller.Done, nil
	}
	v, ok := r.volumes.Get("", c.Spec.VolumeName)
	if !ok || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID {
		return controller.Done, nil
	}
	if claims.LocalTo(v) == "" {
		r.wait(c, v)
		return controller.Done, nil
	}
	if size := v.Spec.Capacity[corev1.ResourceStorage]; size.Cmp(want) < 0 {
		v = v.DeepCopy()
		v.Spec.Capacity[corev1.ResourceStorage] = want
		if _, err := r.volumes.Update(ctx, v); err != nil {
			return controller.Done, err
		}
	}
	c = c.DeepCopy()
	c.Status.Capacity = maps.Clone(c.Status.Capacity)
	c.Status.Capacity[corev1.ResourceStorage] = want
	if _, err := r.claims.UpdateStatus(ctx, c); err != nil {
		return controller.Done, err
	}
	r.events.Event(c, corev1.EventTypeNormal, "VolumeResizeSuccessful", "ExpandVolume succeeded for volume "+c.Namespace+"/"+c.Name)
	return controller.Done, nil
}

// wait says that the claim is for somebody else to expand.
func (r reconciler) wait(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
	if v.Spec.CSI != nil {
		r.events.Event(c, corev1.EventTypeNormal, "ExternalExpanding", "waiting for an external controller to expand this PVC")
		return
	}
	r.events.Event(c, corev1.EventTypeWarning, "ExternalExpanding", "didn't find a plugin capable of expanding the volume; waiting for an external controller to process this PVC")
}
