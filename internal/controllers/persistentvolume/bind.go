package persistentvolume

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// bind writes what is missing of the binding of a volume and a claim: the volume's
// reference, its phase, the claim's reference, its status.
func (b *binder) bind(ctx context.Context, v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) error {
	if fresh := claims.Bind(v, c); fresh != nil {
		var err error
		if v, err = b.volumes.Update(ctx, fresh); err != nil {
			return err
		}
	}
	v, err := b.phase(ctx, v, corev1.VolumeBound, "")
	if err != nil {
		return err
	}
	if fresh := boundTo(c, v.Name); fresh != nil {
		if c, err = b.claims.Update(ctx, fresh); err != nil {
			return err
		}
	}
	if err := b.claimBound(ctx, c, v); err != nil {
		return err
	}
	b.ended(claimKey+cache.Key(c.Namespace, c.Name), provisioning)
	return caughtUp(ctx, b.volumes.Cache, v) // the next claim must not choose it too
}

// boundTo returns a copy of a claim that names its volume; nil if it does already.
func boundTo(c *corev1.PersistentVolumeClaim, volume string) *corev1.PersistentVolumeClaim {
	if claims.Completed(c) && c.Spec.VolumeName == volume {
		return nil
	}
	c = c.DeepCopy()
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[claims.BindCompleted] = claims.Yes
	if c.Spec.VolumeName != volume {
		c.Spec.VolumeName = volume
		c.Annotations[claims.BoundByController] = claims.Yes
	}
	return c
}

// claimBound writes into a claim's status what it got. How large the volume is does
// not change there later: that is for who makes it grow.
func (b *binder) claimBound(ctx context.Context, c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	fresh := c.DeepCopy()
	s := &fresh.Status
	s.AccessModes = slices.Clone(v.Spec.AccessModes)
	if s.Phase != corev1.ClaimBound {
		s.Phase = corev1.ClaimBound
		size, ok := v.Spec.Capacity[corev1.ResourceStorage]
		if !ok {
			return fmt.Errorf("PersistentVolume %q is without a storage capacity", v.Name)
		}
		if before, err := apiresource.ParseQuantity(v.Annotations[claims.PreResizeCapacity]); err == nil {
			size = before // its file system does not fill it yet
		}
		s.Capacity = maps.Clone(s.Capacity)
		if s.Capacity == nil {
			s.Capacity = corev1.ResourceList{}
		}
		s.Capacity[corev1.ResourceStorage] = size
		s.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
	}
	if equality.Semantic.DeepEqual(fresh.Status, c.Status) {
		return nil
	}
	_, err := b.claims.UpdateStatus(ctx, fresh)
	return err
}

// pending says that a claim has no volume.
func (b *binder) pending(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	return b.unboundStatus(ctx, c, corev1.ClaimPending)
}

// lost says that a claim's volume is gone. It does not get another one.
func (b *binder) lost(ctx context.Context, c *corev1.PersistentVolumeClaim, reason, message string) error {
	if c.Status.Phase == corev1.ClaimLost {
		return nil
	}
	if err := b.unboundStatus(ctx, c, corev1.ClaimLost); err != nil {
		return err
	}
	b.events.Event(c, corev1.EventTypeWarning, reason, message)
	return nil
}

func (b *binder) unboundStatus(ctx context.Context, c *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase) error {
	if c.Status.Phase == phase && c.Status.AccessModes == nil && c.Status.Capacity == nil {
		return nil
	}
	c = c.DeepCopy()
	c.Status.Phase, c.Status.AccessModes, c.Status.Capacity = phase, nil, nil
	_, err := b.claims.UpdateStatus(ctx, c)
	return err
}

// phase writes the phase of a volume, if it is another.
func (b *binder) phase(ctx context.Context, v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase, message string) (*corev1.PersistentVolume, error) {
	if v.Status.Phase == phase {
		return v, nil
	}
	v = v.DeepCopy()
	v.Status.Phase, v.Status.Message = phase, message
	return b.volumes.UpdateStatus(ctx, v)
}

// markFailed says that a volume cannot be given to others, and why.
func (b *binder) markFailed(ctx context.Context, v *corev1.PersistentVolume, reason, message string) error {
	if v.Status.Phase == corev1.VolumeFailed {
		return nil
	}
	v, err := b.phase(ctx, v, corev1.VolumeFailed, message)
	if err != nil {
		return err
	}
	b.events.Event(v, corev1.EventTypeWarning, reason, message)
	return nil
}

// caughtUp returns when a cache shows all that happened before an object was written.
func caughtUp(ctx context.Context, c *cache.Cache, obj resource.Object) error {
	rev := resource.Revision(obj)
	if err := c.WaitRev(ctx, rev); err != nil {
		return fmt.Errorf("wait for revision %d: %w", rev, err)
	}
	return nil
}
