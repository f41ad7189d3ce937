package resourceclaim

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
)

// New returns the controller that looks after claims, with its metrics in reg if there is
// one. Its keys are pods and claims, each behind its prefix. Pods without claims wake
// nobody.
func New(reg *prometheus.Registry) *controller.Controller {
	m := newMetrics(reg)
	return controller.NewKeyed(controller.Keyed{
		Name:   "resource-claim-controller",
		Source: "resource_claim",
		Watches: []controller.Watch{
			controller.Mapped(core.Pods, func(_ *controller.Kit, p *corev1.Pod) []string { return podKeys(p) }),
			controller.Mapped(dra.ResourceClaims, claimKeys),
			controller.Mapped(dra.ResourceClaimTemplates, templateKeys),
		},
		Writes: []controller.Permission{
			controller.Create(dra.ResourceClaims.Def), controller.Update(dra.ResourceClaims.Def), controller.Delete(dra.ResourceClaims.Def),
			controller.UpdateStatus(dra.ResourceClaims.Def), controller.Patch(core.Pods.Def, "status"),
		},
		Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"update"}, APIGroups: []string{resourcev1.GroupName}, Resources: []string{"resourceclaims/binding"}},
			{Verbs: []string{"update"}, APIGroups: []string{""}, Resources: []string{"pods/finalizers"}}, // pods own claims, and cannot go before them
		},
		Setup: func(k *controller.Kit) func(ctx context.Context, key string) (controller.Next, error) {
			r := &reconciler{
				events: k.Events, metrics: m,
				pods: controller.For(k, core.Pods), claims: controller.For(k, dra.ResourceClaims), templates: controller.For(k, dra.ResourceClaimTemplates),
			}
			m.claims.Store(&r.claims)
			return r.reconcile
		},
	})
}

// What a key is of.
const (
	podPrefix   = "pod:"
	claimPrefix = "claim:"
)

// podKeys are a pod with claims and what it uses.
func podKeys(p *corev1.Pod) []string {
	var keys []string
	if len(p.Spec.ResourceClaims) > 0 {
		keys = append(keys, podPrefix+cache.Key(p.Namespace, p.Name))
	}
	for _, name := range core.ResourceClaimNames(p) {
		keys = append(keys, claimPrefix+cache.Key(p.Namespace, name))
	}
	return keys
}

// claimKeys are a claim and the pods that use it, or that it was made for.
func claimKeys(k *controller.Kit, c *resourcev1.ResourceClaim) []string {
	key := cache.Key(c.Namespace, c.Name)
	keys := []string{claimPrefix + key}
	for _, p := range controller.For(k, core.Pods).ByIndex(core.IndexResourceClaim, key) {
		keys = append(keys, podPrefix+cache.Key(p.Namespace, p.Name))
	}
	if name, _ := owner(c); name != "" {
		keys = append(keys, podPrefix+cache.Key(c.Namespace, name))
	}
	return keys
}

// templateKeys are the pods that wait for a template.
func templateKeys(k *controller.Kit, t *resourcev1.ResourceClaimTemplate) []string {
	var keys []string
	for _, p := range controller.For(k, core.Pods).ByIndex(core.IndexUnmadeClaim, cache.Key(t.Namespace, t.Name)) {
		keys = append(keys, podPrefix+cache.Key(p.Namespace, p.Name))
	}
	return keys
}

type reconciler struct {
	events    client.EventSink
	metrics   *metrics
	pods      controller.Client[*corev1.Pod]
	claims    controller.Client[*resourcev1.ResourceClaim]
	templates controller.Client[*resourcev1.ResourceClaimTemplate]
}

func (r *reconciler) reconcile(ctx context.Context, key string) (controller.Next, error) {
	if of, ok := strings.CutPrefix(key, podPrefix); ok {
		namespace, name, _ := strings.Cut(of, "/")
		p, ok := r.pods.Get(namespace, name)
		if !ok || p.DeletionTimestamp != nil || core.PodTerminal(p) {
			return controller.Done, nil
		}
		return controller.Done, r.pod(ctx, p)
	}
	namespace, name, _ := strings.Cut(strings.TrimPrefix(key, claimPrefix), "/")
	c, ok := r.claims.Get(namespace, name)
	if !ok {
		return controller.Done, nil
	}
	return controller.Done, r.claim(ctx, c)
}
