package objects

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core/claims"
)

// VolumeOf returns the persistent volume that one of the pod's volumes stands for. It
// fails unless the claim is bound to it, and it to the claim.
func (o *Objects) VolumeOf(ctx context.Context, pod *v1.Pod, v *v1.Volume) (*v1.PersistentVolume, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c, err := o.claims.Get(ctx, pod.Namespace, claims.OfVolume(pod, v))
	switch {
	case err != nil:
		return nil, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	case c.DeletionTimestamp != nil:
		return nil, errors.New("PVC is being deleted")
	case v.Ephemeral != nil && !claims.MadeFor(c, pod):
		return nil, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", c.Namespace, c.Name, pod.Namespace, pod.Name)
	case c.Status.Phase != v1.ClaimBound || c.Spec.VolumeName == "":
		return nil, errors.New("PVC is not bound")
	}
	pv, err := o.volumes.Get(ctx, "", c.Spec.VolumeName)
	switch {
	case err != nil:
		return nil, fmt.Errorf("failed to fetch PV %s from API server: %w", c.Spec.VolumeName, err)
	case pv.Spec.ClaimRef == nil:
		return nil, fmt.Errorf("found PV object %s with nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", pv.Name)
	case pv.Spec.ClaimRef.UID != c.UID:
		return nil, fmt.Errorf("found PV object %s with a pv.Spec.ClaimRef.UID %s that does not point to the claim.UID %s", pv.Name, pv.Spec.ClaimRef.UID, c.UID)
	}
	return pv, nil
}
