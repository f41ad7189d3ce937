package objects

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
)

// VolumeOf returns the claim and the persistent volume that one of the pod's volumes stands for. It
// fails unless the claim is bound to the volume, and that to the claim.
func (o *Objects) VolumeOf(ctx context.Context, pod *v1.Pod, v *v1.Volume) (*v1.PersistentVolumeClaim, *v1.PersistentVolume, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c, err := o.claims.Get(ctx, pod.Namespace, claims.OfVolume(pod, v))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	case c.DeletionTimestamp != nil:
		return nil, nil, errors.New("PVC is being deleted")
	case v.Ephemeral != nil && !claims.MadeFor(c, pod):
		return nil, nil, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", c.Namespace, c.Name, pod.Namespace, pod.Name)
	case c.Status.Phase != v1.ClaimBound || c.Spec.VolumeName == "":
		return nil, nil, errors.New("PVC is not bound")
	}
	pv, err := o.volumes.Get(ctx, "", c.Spec.VolumeName)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("failed to fetch PV %s from API server: %w", c.Spec.VolumeName, err)
	case pv.Spec.ClaimRef == nil:
		return nil, nil, fmt.Errorf("found PV object %s with nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", pv.Name)
	case pv.Spec.ClaimRef.UID != c.UID:
		return nil, nil, fmt.Errorf("found PV object %s with a pv.Spec.ClaimRef.UID %s that does not point to the claim.UID %s", pv.Name, pv.Spec.ClaimRef.UID, c.UID)
	}
	return c, pv, nil
}

// CSIDriver returns what the cluster knows of a driver; nil if that is nothing.
func (o *Objects) CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	d, err := client.For(o.t, storage.CSIDrivers).Get(ctx, "", name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("failed to get CSIDriver %q: %w", name, err)
	}
	return d, nil
}

// FollowCSIDriver tells what the cluster knows of a driver (nil: nothing), now and whenever that changes, until ctx ends.
func (o *Objects) FollowCSIDriver(ctx context.Context, name string, tell func(*storagev1.CSIDriver)) error {
	c, release := o.t.Hold(storage.CSIDrivers.Def, reference{def: storage.CSIDrivers.Def, name: name}.scope())
	defer release()
	return c.Each(ctx, cache.FollowOptions{}, func(deltas []cache.Delta) error {
		for _, d := range deltas {
			if d.Last().Object.GetName() != name { // where the server's own cache is at hand it has all
				continue
			}
			var about *storagev1.CSIDriver
			if d.Now != nil {
				about = d.Now.Object.(*storagev1.CSIDriver)
			}
			tell(about)
		}
		return nil
	})
}

// Exhausted reports whether the VolumeAttachment of the name says that the node takes no more volumes.
func (o *Objects) Exhausted(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	a, err := client.For(o.t, storage.VolumeAttachments).Get(ctx, "", name)
	if err != nil || a.Status.AttachError == nil || a.Status.AttachError.ErrorCode == nil {
		return false
	}
	return *a.Status.AttachError.ErrorCode == int32(codes.ResourceExhausted)
}

// Attached returns what was said when a volume was attached by the VolumeAttachment of the name. It fails unless that
// is the case.
func (o *Objects) Attached(ctx context.Context, name string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	a, err := client.For(o.t, storage.VolumeAttachments).Get(ctx, "", name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("kubernetes.io/csi: attachment object %q cannot be had: %w", name, err)
	case a.DeletionTimestamp != nil:
		return nil, fmt.Errorf("kubernetes.io/csi: volume attachment %q is being deleted", name)
	case !a.Status.Attached && a.Status.AttachError != nil:
		return nil, errors.New(a.Status.AttachError.Message)
	case !a.Status.Attached:
		return nil, fmt.Errorf("kubernetes.io/csi: volume attachment %q is not attached", name)
	}
	return a.Status.AttachmentMetadata, nil
}
