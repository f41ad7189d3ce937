package storageprotection

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Attributes protects classes of attributes.
var Attributes = controller.New(controller.Spec[*storagev1.VolumeAttributesClass]{
	Name: "volumeattributesclass-protection-controller",
	For:  storage.VolumeAttributesClasses,
	Watches: []controller.Watch{
		controller.Mapped(core.PersistentVolumeClaims, func(_ *controller.Kit, c *corev1.PersistentVolumeClaim) []string { return claims.Attributes(c) }),
		controller.Mapped(core.PersistentVolumes, func(_ *controller.Kit, v *corev1.PersistentVolume) []string { return claims.VolumeAttributes(v) }),
	},
	Writes: []controller.Permission{controller.Update(storage.VolumeAttributesClasses.Def)},
	Setup: func(k *controller.Kit) controller.Reconciler[*storagev1.VolumeAttributesClass] {
		return attributesKeeper{controller.For(k, storage.VolumeAttributesClasses), controller.For(k, core.PersistentVolumeClaims), controller.For(k, core.PersistentVolumes)}
	},
})

type attributesKeeper struct {
	classes controller.Client[*storagev1.VolumeAttributesClass]
	claims  controller.Client[*corev1.PersistentVolumeClaim]
	volumes controller.Client[*corev1.PersistentVolume]
}

// Reconcile gives a class its finalizer, or takes it away when it is to go and no claim or
// volume has it, or is to get it.
func (r attributesKeeper) Reconcile(ctx context.Context, c *storagev1.VolumeAttributesClass) (controller.Next, error) {
	has := slices.Contains(c.Finalizers, claims.ProtectAttributes)
	switch {
	case c.DeletionTimestamp == nil && !has:
		return controller.Done, update(ctx, r.classes, c, append(slices.Clone(c.Finalizers), claims.ProtectAttributes))
	case c.DeletionTimestamp == nil || !has:
		return controller.Done, nil
	}
	rev := resource.Revision(c)
	if err := r.claims.WaitRev(ctx, rev); err != nil {
		return controller.Done, fmt.Errorf("wait for the claims of revision %d: %w", rev, err)
	}
	if err := r.volumes.WaitRev(ctx, rev); err != nil {
		return controller.Done, fmt.Errorf("wait for the volumes of revision %d: %w", rev, err)
	}
	if len(r.claims.ByIndex(core.IndexAttributes, c.Name)) > 0 || len(r.volumes.ByIndex(core.IndexAttributes, c.Name)) > 0 {
		return controller.Done, nil
	}
	return controller.Done, update(ctx, r.classes, c, without(c.Finalizers, claims.ProtectAttributes))
}
