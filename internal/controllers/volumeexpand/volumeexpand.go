// Package volumeexpand has volumes grow when their claims ask for more. Directories
// of a node have no size of their own: they grow by saying so. Local volumes that people have made larger are for
// the node, all others for the driver's controller, whose turn it is said to be.
package volumeexpand

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
)

// Controller expands volumes.
var Controller = controller.New(controller.Spec[*corev1.PersistentVolumeClaim]{
	Name:   "expand-controller",
	Source: "volume_expand",
	For:    core.PersistentVolumeClaims,
	Watches: []controller.Watch{controller.Mapped(core.PersistentVolumes, func(_ *controller.Kit, v *corev1.PersistentVolume) []string {
		if v.Spec.Local == nil || v.Spec.ClaimRef == nil {
			return nil
		}
		return []string{cache.Key(v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name)}
	})},
	Writes: []controller.Permission{
		controller.Update(core.PersistentVolumes.Def), controller.Update(core.PersistentVolumeClaims.Def), controller.UpdateStatus(core.PersistentVolumeClaims.Def),
	},
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
	size := v.Spec.Capacity[corev1.ResourceStorage]
	switch {
	case claims.LocalTo(v) != "":
	case v.Spec.Local != nil && size.Cmp(has) > 0:
		return controller.Done, r.leaveToNode(ctx, c)
	default:
		return controller.Done, r.handOver(ctx, c, v)
	}
	if size.Cmp(want) < 0 {
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

// leaveToNode says that the node is to have a file system fill its volume.
func (r reconciler) leaveToNode(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if slices.ContainsFunc(c.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
	}) {
		return nil
	}
	c = c.DeepCopy()
	c.Status.Conditions = append(c.Status.Conditions, corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now().Rfc3339Copy(),
		Message: "Waiting for user to (re-)start a pod to finish file system resize of volume on node.",
	})
	_, err := r.claims.UpdateStatus(ctx, c)
	return err
}

// handOver says that the claim is for somebody else to expand: for one of a kind that was built in once, who that is.
func (r reconciler) handOver(ctx context.Context, c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	known := csi.Of(v)
	switch {
	case v.Spec.CSI != nil:
		r.events.Event(c, corev1.EventTypeNormal, "ExternalExpanding", "waiting for an external controller to expand this PVC")
		return nil
	case known == nil:
		r.events.Event(c, corev1.EventTypeWarning, "ExternalExpanding", "didn't find a plugin capable of expanding the volume; waiting for an external controller to process this PVC")
		return nil
	}
	r.events.Event(c, corev1.EventTypeNormal, "ExternalExpanding", fmt.Sprintf("CSI migration enabled for %s; waiting for external resizer to expand the pvc", csi.Plugin(v)))
	if c.Annotations[claims.Resizer] == known.Spec.CSI.Driver {
		return nil
	}
	c = c.DeepCopy()
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, claims.Resizer, known.Spec.CSI.Driver)
	_, err := r.claims.Update(ctx, c)
	return err
}
