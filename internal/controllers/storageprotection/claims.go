package storageprotection

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Claims protects claims.
var Claims = controller.New(controller.Spec[*corev1.PersistentVolumeClaim]{
	Name: "pvc-protection-controller",
	For:  core.PersistentVolumeClaims,
	Watches: []controller.Watch{controller.Mapped(core.Pods, func(k *controller.Kit, p *corev1.Pod) []string {
		keys := claims.Of(p)
		for i := range keys {
			keys[i] = cache.Key(p.Namespace, keys[i])
		}
		return keys
	})},
	Writes: []controller.Permission{controller.Update(core.PersistentVolumeClaims.Def), controller.UpdateStatus(core.PersistentVolumeClaims.Def)},
	Setup: func(k *controller.Kit) controller.Reconciler[*corev1.PersistentVolumeClaim] {
		return claimKeeper{controller.For(k, core.PersistentVolumeClaims), controller.For(k, core.Pods)}
	},
})

type claimKeeper struct {
	claims controller.Client[*corev1.PersistentVolumeClaim]
	pods   controller.Client[*corev1.Pod]
}

// Reconcile gives a claim its finalizer and tells whether pods refer to it, or takes the
// finalizer away when the claim is to go and no pod needs it.
func (r claimKeeper) Reconcile(ctx context.Context, c *corev1.PersistentVolumeClaim) (controller.Next, error) {
	has := slices.Contains(c.Finalizers, claims.ProtectClaim)
	if c.DeletionTimestamp == nil {
		if has {
			return controller.Done, r.tell(ctx, c)
		}
		return controller.Done, update(ctx, r.claims, c, append(slices.Clone(c.Finalizers), claims.ProtectClaim))
	}
	if !has {
		return controller.Done, nil
	}
	pods, err := r.podsOf(ctx, c) // who was given a node before the deletion is seen here; nobody is after it
	if err != nil || slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return uses(p, c) }) {
		return controller.Done, err
	}
	return controller.Done, update(ctx, r.claims, c, without(c.Finalizers, claims.ProtectClaim))
}

// podsOf are the pods that may be about a claim, as of its revision or later.
func (r claimKeeper) podsOf(ctx context.Context, c *corev1.PersistentVolumeClaim) ([]*corev1.Pod, error) {
	rev := resource.Revision(c)
	if err := r.pods.WaitRev(ctx, rev); err != nil {
		return nil, fmt.Errorf("wait for the pods of revision %d: %w", rev, err)
	}
	return r.pods.ByIndex(core.IndexClaim, cache.Key(c.Namespace, c.Name)), nil
}

// uses reports whether a pod holds a claim: it has a node, where the volume may be
// mounted still although all containers are over. One of another's name does not.
func uses(p *corev1.Pod, c *corev1.PersistentVolumeClaim) bool {
	if p.Spec.NodeName == "" {
		return false
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if claims.OfVolume(p, v) == c.Name && (v.Ephemeral == nil || claims.MadeFor(c, p) && !shutDown(p)) {
			return true
		}
	}
	return false
}

// shutDown reports whether the node has nothing left of a pod.
func shutDown(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
}

func without(list []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == name })
}

// update writes the finalizers of an object.
func update[T interface {
	resource.Object
	DeepCopy() T
}](ctx context.Context, api controller.Client[T], obj T, finalizers []string) error {
	obj = obj.DeepCopy()
	obj.SetFinalizers(finalizers)
	_, err := api.Update(ctx, obj)
	return err
}
