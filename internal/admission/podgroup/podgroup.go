// Package podgroup is the plugin PodGroupProtection: a group of pods gets the finalizer
// that keeps it as long as pods of it are at work, and no new pods once it is to go.
package podgroup

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/scheduling"
)

// New returns the plugin. Where groups are not served it does nothing.
func New(o *admission.Options) admission.Plugin {
	groups := admission.Reader(o, scheduling.PodGroups)
	check := func(_ context.Context, a *admission.Attributes) error {
		p, ok := a.Object.(*corev1.Pod)
		if !ok || p.Spec.SchedulingGroup == nil || !a.Is(core.Pods.Def, "", admission.Create) {
			return nil
		}
		name := core.PodGroupName(p)
		g, ok := groups.Get(a.Namespace, name)
		if !ok {
			return nil // it may come later
		}
		if g.DeletionTimestamp != nil {
			return a.Forbid("cannot create Pod referencing PodGroup %q because it is being deleted", name)
		}
		a.Rely(scheduling.PodGroups.Def, g)
		return nil
	}
	return admission.Plugin{
		Name: "PodGroupProtection",
		Mutate: func(_ context.Context, a *admission.Attributes) error {
			g, ok := a.Object.(*schedulingv1beta1.PodGroup)
			if ok && a.Is(scheduling.PodGroups.Def, "", admission.Create) && !slices.Contains(g.Finalizers, scheduling.PodGroupFinalizer) {
				g.Finalizers = append(g.Finalizers, scheduling.PodGroupFinalizer)
			}
			return nil
		},
		Validate: check, Recheck: check,
	}
}
