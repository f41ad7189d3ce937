package plugins

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
)

// taintNodesByCondition keeps pods away from a new node until it is ready.
func taintNodesByCondition() admission.Plugin {
	return admission.Plugin{Name: "TaintNodesByCondition", Mutate: func(_ context.Context, a *admission.Attributes) error {
		n, ok := a.Object.(*corev1.Node)
		if !ok || !a.Is(core.Nodes.Def, "", admission.Create) {
			return nil
		}
		taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
		if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
			n.Spec.Taints = append(slices.Clip(n.Spec.Taints), taint)
		}
		return nil
	}}
}

// denyServiceExternalIPs refuses further external addresses of services: whoever
// may set them can draw others' traffic to their pods.
func denyServiceExternalIPs() admission.Plugin {
	return admission.Plugin{Name: "DenyServiceExternalIPs", Validate: func(_ context.Context, a *admission.Attributes) error {
		svc, ok := a.Object.(*corev1.Service)
		if !ok || !a.Is(core.Services.Def, "", admission.Create, admission.Update) {
			return nil
		}
		var before []string
		if old, ok := a.Old.(*corev1.Service); ok {
			before = old.Spec.ExternalIPs
		}
		for _, ip := range svc.Spec.ExternalIPs {
			if !slices.Contains(before, ip) {
				return a.Forbid("Use of external IPs is denied by admission control.")
			}
		}
		return nil
	}}
}
