package storageprotection

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/controller"
)

// Volumes protects volumes.
var Volumes = controller.New(controller.Spec[*corev1.PersistentVolume]{
	Name:   "pv-protection-controller",
	For:    core.PersistentVolumes,
	Writes: []controller.Permission{controller.Update(core.PersistentVolumes.Def)},
	Setup: func(k *controller.Kit) controller.Reconciler[*corev1.PersistentVolume] {
		return volumeKeeper{controller.For(k, core.PersistentVolumes)}
	},
})

type volumeKeeper struct {
	volumes controller.Client[*corev1.PersistentVolume]
}

// Reconcile gives a volume its finalizer, or takes it away when the volume is to
// go and no claim has it.
func (r volumeKeeper) Reconcile(ctx context.Context, v *corev1.PersistentVolume) (controller.Next, error) {
	has := slices.Contains(v.Finalizers, claims.ProtectVolume)
	switch {
	case v.DeletionTimestamp == nil && !has:
		return controller.Done, update(ctx, r.volumes, v, append(slices.Clone(v.Finalizers), claims.ProtectVolume))
	case v.DeletionTimestamp != nil && has && v.Status.Phase != corev1.VolumeBound:
		return controller.Done, update(ctx, r.volumes, v, without(v.Finalizers, claims.ProtectVolume))
	}
	return controller.Done, nil
}
