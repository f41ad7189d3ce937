package devicetainteviction

import (
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
)

// Controller evicts. Its keys are pods and rules, each behind its prefix. Pods without
// claims, slices without taints and claims without devices wake nobody.
var Controller = controller.NewKeyed(controller.Keyed{
	Name: "device-taint-eviction-controller",
	Watches: []controller.Watch{
		controller.Mapped(core.Pods, func(_ *controller.Kit, p *corev1.Pod) []string {
			if len(core.ResourceClaimNames(p)) == 0 {
				return nil
			}
			return []string{podPrefix + cache.Key(p.Namespace, p.Name)}
		}),
		controller.Mapped(dra.ResourceClaims, func(_ *controller.Kit, c *resourcev1.ResourceClaim) []string { return podKeys(c) }),
		controller.Mapped(dra.ResourceSlices, sliceKeys),
		controller.Mapped(dra.DeviceTaintRules, ruleKeys),
	},
	Writes: []controller.Permission{
		controller.Delete(core.Pods.Def), controller.Patch(core.Pods.Def, "status"), controller.UpdateStatus(dra.DeviceTaintRules.Def),
	},
	Setup: func(k *controller.Kit) func(ctx context.Context, key string) (controller.Next, error) {
		r := &reconciler{k: k, pods: controller.For(k, core.Pods), rules: controller.For(k, dra.DeviceTaintRules), world: newWorld(k), counted: controller.OwnMetrics(k, newCounters)}
		r.mu.evicted, r.mu.pending = map[types.UID]int{}, map[string]bool{}
		return r.reconcile
	},
})

// What a key is of.
const (
	podPrefix  = "pod:"
	rulePrefix = "rule:"
)

// podKeys are the pods that may use what a claim has got.
func podKeys(c *resourcev1.ResourceClaim) []string {
	if c.Status.Allocation == nil {
		return nil
	}
	var keys []string
	for _, ref := range c.Status.ReservedFor {
		if ref.APIGroup == "" && ref.Resource == "pods" {
			keys = append(keys, podPrefix+cache.Key(c.Namespace, ref.Name))
		}
	}
	return keys
}

// sliceKeys are the pods that use devices of a pool with taints.
func sliceKeys(k *controller.Kit, s *resourcev1.ResourceSlice) []string {
	if !evicts(s) {
		return nil
	}
	var keys []string
	for _, c := range controller.For(k, dra.ResourceClaims).ByIndex(dra.IndexPool, s.Spec.Driver+"/"+s.Spec.Pool.Name) {
		keys = append(keys, podKeys(c)...)
	}
	return keys
}

func evicts(s *resourcev1.ResourceSlice) bool {
	for i := range s.Spec.Devices {
		for j := range s.Spec.Devices[i].Taints {
			if s.Spec.Devices[i].Taints[j].Effect == resourcev1.DeviceTaintEffectNoExecute {
				return true
			}
		}
	}
	return false
}

// ruleKeys are a rule and the pods that use the devices it selects.
func ruleKeys(k *controller.Kit, r *resourcev1.DeviceTaintRule) []string {
	keys := []string{rulePrefix + r.Name}
	if r.Spec.Taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
		return keys
	}
	for _, c := range controller.For(k, dra.ResourceClaims).List("", nil) {
		if selects(r, c) {
			keys = append(keys, podKeys(c)...)
		}
	}
	return keys
}

type reconciler struct {
	k       *controller.Kit
	pods    controller.Client[*corev1.Pod]
	rules   controller.Client[*resourcev1.DeviceTaintRule]
	world   world
	counted *counters
	mu      struct {
		sync.Mutex
		evicted map[types.UID]int // pods that went because of a rule, by the rule's UID
		pending map[string]bool   // pods that are to go later, by key
	}
}

func (r *reconciler) reconcile(ctx context.Context, key string) (controller.Next, error) {
	if name, ok := strings.CutPrefix(key, rulePrefix); ok {
		rule, ok := r.rules.Get("", name)
		if !ok {
			return controller.Done, nil
		}
		return r.rule(ctx, rule)
	}
	key = strings.TrimPrefix(key, podPrefix)
	namespace, name, _ := strings.Cut(key, "/")
	p, ok := r.pods.Get(namespace, name)
	if !ok || p.DeletionTimestamp != nil || core.PodTerminal(p) {
		r.waits(key, false)
		return controller.Done, nil
	}
	e := r.world.eviction(p, nil)
	if e == nil {
		if r.waits(key, false) {
			r.k.Events.Event(p, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Cancelling deletion")
		}
		return controller.Done, nil
	}
	if wait := time.Until(e.when); wait > 0 {
		r.waits(key, true)
		return controller.After(wait), nil
	}
	return controller.Done, r.evict(ctx, p, e)
}

// waits notes whether a pod is to go later, and returns whether it was before.
func (r *reconciler) waits(key string, now bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.mu.pending[key]
	if now {
		r.mu.pending[key] = true
	} else {
		delete(r.mu.pending, key)
	}
	return before
}

func (r *reconciler) evict(ctx context.Context, p *corev1.Pod, e *eviction) error {
	r.k.Events.Event(p, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Marking for deletion")
	now, err := r.pods.StrategicPatch(ctx, p, "status", map[string]any{"status": map[string]any{
		"conditions": []any{map[string]any{
			"type": corev1.DisruptionTarget, "status": corev1.ConditionTrue, "reason": "DeletionByDeviceTaintManager",
			"message": "Device Taint manager: deleting due to NoExecute taint", "observedGeneration": p.Generation, "lastTransitionTime": metav1.Now(),
		}},
	}})
	if err == nil {
		err = r.pods.DeleteByUID(ctx, now)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	r.counted.Gone(e.when)
	r.waits(cache.Key(p.Namespace, p.Name), false)
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range e.rules {
		r.mu.evicted[uid]++
	}
	return nil
}
