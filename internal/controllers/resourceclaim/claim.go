package resourceclaim

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
)

// claim gives back what nobody uses any more, one write after the other: the
// reservations, with the last of them the devices, then the finalizer that kept the
// claim, and last the claim itself if it was made for a pod that is over.
func (r *reconciler) claim(ctx context.Context, c *resourcev1.ResourceClaim) error {
	users, err := r.users(ctx, c)
	if err != nil {
		return err
	}
	released := len(users) < len(c.Status.ReservedFor)
	// Only what the scheduler allocated is ours to take back. A claim that was allocated
	// and never used stays as it is until it is deleted.
	protected := slices.Contains(c.Finalizers, resourcev1.Finalizer)
	deallocate := protected && c.Status.Allocation != nil && len(users) == 0 && (released || c.DeletionTimestamp != nil)
	if released || deallocate {
		c = c.DeepCopy()
		c.Status.ReservedFor = users
		if deallocate {
			c.Status.Allocation = nil
		}
		if c, err = r.claims.UpdateStatus(ctx, c); err != nil {
			return fmt.Errorf("release claim: %w", err)
		}
	}
	if protected && c.Status.Allocation == nil && (released || deallocate || c.DeletionTimestamp != nil) {
		c = c.DeepCopy()
		c.Finalizers = slices.DeleteFunc(c.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
		if c, err = r.claims.Update(ctx, c); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove finalizer: %w", err)
		}
	}
	if len(users) > 0 || c == nil || c.DeletionTimestamp != nil {
		return nil
	}
	return r.delete(ctx, c)
}

// delete deletes a claim that was made for a pod that is over. If the pod is gone, the
// garbage collector does it.
func (r *reconciler) delete(ctx context.Context, c *resourcev1.ResourceClaim) error {
	name, uid := owner(c)
	if name == "" {
		return nil
	}
	p, ok := r.pods.Get(c.Namespace, name)
	if !ok || p.UID == uid && !over(p) {
		return nil
	}
	if err := r.claims.Delete(ctx, c); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete claim of pod %s: %w", name, err)
	}
	return nil
}

// users are the entries of reservedFor that still count. Those that are not pods are not
// ours to judge.
func (r *reconciler) users(ctx context.Context, c *resourcev1.ResourceClaim) ([]resourcev1.ResourceClaimConsumerReference, error) {
	var users []resourcev1.ResourceClaimConsumerReference
	for _, ref := range c.Status.ReservedFor {
		if ref.APIGroup != "" || ref.Resource != "pods" {
			users = append(users, ref)
			continue
		}
		p, ok := r.pods.Get(c.Namespace, ref.Name)
		if !ok {
			// The scheduler may know a pod that has not come here yet.
			var err error
			if p, err = r.pods.Live(ctx, c.Namespace, ref.Name); apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return nil, fmt.Errorf("look for pod %s: %w", ref.Name, err)
			}
		}
		if p.UID == ref.UID && !over(p) {
			users = append(users, ref)
		}
	}
	return users, nil
}

// over reports whether a pod will not run any more: it has ended, or was deleted before
// it had a node.
func over(p *corev1.Pod) bool {
	return core.PodTerminal(p) || p.DeletionTimestamp != nil && p.Spec.NodeName == ""
}

// owner is the pod that a claim was made for; the name is empty if there is none.
func owner(c *resourcev1.ResourceClaim) (name string, uid types.UID) {
	ref := metav1.GetControllerOfNoCopy(c)
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" {
		return "", ""
	}
	return ref.Name, ref.UID
}
