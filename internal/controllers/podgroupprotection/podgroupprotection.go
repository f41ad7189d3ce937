// Package podgroupprotection keeps groups of pods that are to go until none of their
// pods is at work any more: the scheduler still has to know what the group asks for.
// A finalizer holds a group up, which admission gives to new ones.
package podgroupprotection

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Controller takes the finalizer away in the end.
var Controller = controller.New(controller.Spec[*schedulingv1beta1.PodGroup]{
	Name:    "podgroup-protection-controller",
	For:     scheduling.PodGroups,
	Watches: []controller.Watch{controller.Mapped(core.Pods, func(_ *controller.Kit, p *corev1.Pod) []string { return core.PodGroupKeys(p) })},
	Writes:  []controller.Permission{controller.Update(scheduling.PodGroups.Def)},
	Setup: func(k *controller.Kit) controller.Reconciler[*schedulingv1beta1.PodGroup] {
		return keeper{controller.For(k, scheduling.PodGroups), controller.For(k, core.Pods)}
	},
})

type keeper struct {
	groups controller.Client[*schedulingv1beta1.PodGroup]
	pods   controller.Client[*corev1.Pod]
}

// Reconcile lets a group go that is to go, when all of its pods are over.
func (r keeper) Reconcile(ctx context.Context, g *schedulingv1beta1.PodGroup) (controller.Next, error) {
	if g.DeletionTimestamp == nil || !slices.Contains(g.Finalizers, scheduling.PodGroupFinalizer) {
		return controller.Done, nil
	}
	// Pods that were made before the deletion are seen here; none is after it.
	rev := resource.Revision(g)
	if err := r.pods.WaitRev(ctx, rev); err != nil {
		return controller.Done, fmt.Errorf("wait for the pods of revision %d: %w", rev, err)
	}
	for _, p := range r.pods.ByIndex(core.IndexPodGroup, cache.Key(g.Namespace, g.Name)) {
		if !core.PodTerminal(p) {
			return controller.Done, nil
		}
	}
	g = g.DeepCopy()
	g.Finalizers = slices.DeleteFunc(g.Finalizers, func(f string) bool { return f == scheduling.PodGroupFinalizer })
	_, err := r.groups.Update(ctx, g)
	return controller.Done, err
}
