package persistentvolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/controller"
)

// volume says in a volume's status whose it is, and lets it go when its claim is gone.
func (b *binder) volume(ctx context.Context, v *corev1.PersistentVolume) (controller.Next, error) {
	if fresh := migrated(v); fresh != nil {
		_, err := b.volumes.Update(ctx, fresh)
		return controller.Done, err // which brings it back
	}
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" { // nobody's, or reserved for a claim that is not bound yet
		_, err := b.phase(ctx, v, corev1.VolumeAvailable, "")
		return controller.Done, err
	}
	c, err := b.claimOf(ctx, v)
	switch {
	case err != nil:
		return controller.Done, err
	case c == nil:
		return b.release(ctx, v)
	case c.Spec.VolumeName == "":
		if !claims.SameMode(v, c) {
			b.events.Event(v, corev1.EventTypeWarning, "VolumeMismatch",
				fmt.Sprintf("Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.", c.Name))
			b.events.Event(c, corev1.EventTypeWarning, "VolumeMismatch",
				fmt.Sprintf("Cannot bind PersistentVolume %q to requested PersistentVolumeClaim %q due to incompatible volumeMode.", v.Name, c.Name))
		}
		return controller.Done, nil // the claim's own turn completes the binding
	case c.Spec.VolumeName == v.Name:
		_, err := b.phase(ctx, v, corev1.VolumeBound, "")
		return controller.Done, err
	}
	// The claim got another volume.
	if v.Annotations[claims.ProvisionedBy] != "" && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		return b.release(ctx, v)
	}
	return controller.Done, b.giveBack(ctx, v)
}

// claimOf is the claim that a volume is bound to; nil: it is gone. The volume may
// have been written after what the cache shows of claims.
func (b *binder) claimOf(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, error) {
	ref := v.Spec.ClaimRef
	if err := caughtUp(ctx, b.claims.Cache, v); err != nil {
		return nil, err
	}
	if c, ok := b.claims.Get(ref.Namespace, ref.Name); ok && c.UID == ref.UID {
		return c, nil
	}
	return nil, nil
}

// release notes that a volume's claim is gone, and does with it what its policy says.
func (b *binder) release(ctx context.Context, v *corev1.PersistentVolume) (controller.Next, error) {
	if p := v.Status.Phase; p != corev1.VolumeReleased && p != corev1.VolumeFailed {
		var err error
		if v, err = b.phase(ctx, v, corev1.VolumeReleased, ""); err != nil {
			return controller.Done, err
		}
	}
	switch v.Spec.PersistentVolumeReclaimPolicy {
	case corev1.PersistentVolumeReclaimRetain:
		return controller.Done, nil
	case corev1.PersistentVolumeReclaimDelete:
		if why := undeletable(v); why != "" {
			return controller.Done, b.markFailed(ctx, v, "VolumeFailedDelete", why)
		}
		sc, _ := b.classes.Get("", v.Spec.StorageClassName)
		b.begin(volumeKey+v.Name, deleting, ptr.Deref(sc, storagev1.StorageClass{}).Provisioner)
		return controller.Done, nil // who has made it deletes it
	case corev1.PersistentVolumeReclaimRecycle:
		return b.recycle(ctx, v)
	}
	return controller.Done, b.markFailed(ctx, v, "VolumeUnknownReclaimPolicy", "Volume has unrecognized reclaim policy")
}

// undeletable says why nobody will delete a volume; empty: a provisioner will.
func undeletable(v *corev1.PersistentVolume) string {
	by := v.Annotations[claims.ProvisionedBy]
	if _, migrated := csi.Driver(by); migrated || by != "" && !claims.BuiltIn(by) || by == "" && v.Spec.CSI != nil {
		return ""
	}
	if h := v.Spec.HostPath; h != nil {
		return "host_path deleter only supports /tmp/.+ but received provided " + h.Path
	}
	return fmt.Sprintf("error getting deleter volume plugin for volume %q: no deletable volume plugin matched", v.Name)
}

// giveBack takes from a volume the reference to a claim that does not want it.
func (b *binder) giveBack(ctx context.Context, v *corev1.PersistentVolume) error {
	v = v.DeepCopy()
	if _, ours := v.Annotations[claims.BoundByController]; ours {
		delete(v.Annotations, claims.BoundByController)
		v.Spec.ClaimRef = nil
	} else {
		v.Spec.ClaimRef.UID = "" // a person has reserved it
	}
	v, err := b.volumes.Update(ctx, v)
	if err != nil {
		return err
	}
	_, err = b.phase(ctx, v, corev1.VolumeAvailable, "")
	return err
}
