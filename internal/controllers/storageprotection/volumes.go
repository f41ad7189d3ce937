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
	Name: "pv-protection-controller",
	For:  core.PersistentVolumes,
	// The end of a node frees the volumes that were directories of it.
	Watches: []controller.Watch{controller.Mapped(core.Nodes, func(k *controller.Kit, n *corev1.Node) (keys []string) {
		for _, v := range controller.For(k, core.PersistentVolumes).ByIndex(claims.LocalNode, n.Name) {
			if v.DeletionTimestamp != nil {
				keys = append(keys, v.Name)
			}
		}
		return keys
	})},
	Writes: []controller.Permission{controller.Update(core.PersistentVolumes.Def)},
	Setup: func(k *controller.Kit) controller.Reconciler[*corev1.PersistentVolume] {
		return volumeKeeper{controller.For(k, core.PersistentVolumes), controller.For(k, core.Nodes)}
	},
})

type volumeKeeper struct {
	volumes controller.Client[*corev1.PersistentVolume]
	nodes   controller.Client[*corev1.Node]
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
	case v.DeletionTimestamp != nil && r.orphaned(v):
		return controller.Done, update(ctx, r.volumes, v, without(v.Finalizers, claims.DeletedByDriver))
	}
	return controller.Done, nil
}

// orphaned says that a volume waits for a node to erase it that is not there any more.
func (r volumeKeeper) orphaned(v *corev1.PersistentVolume) bool {
	node := claims.LocalTo(v)
	if node == "" || v.Status.Phase == corev1.VolumeBound || !slices.Contains(v.Finalizers, claims.DeletedByDriver) {
		return false
	}
	_, there := r.nodes.Get("", node)
	return !there
}
