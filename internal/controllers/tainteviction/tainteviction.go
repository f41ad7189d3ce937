// Package tainteviction deletes pods from nodes with NoExecute taints that they
// do not tolerate, or tolerate only for a time.
package tainteviction

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/workload"
)

// Controller is the taint eviction controller.
var Controller = controller.New(controller.Spec[*corev1.Pod]{
	Name: "taint-eviction-controller",
	For:  core.Pods,
	Watches: []controller.Watch{controller.Mapped(core.Nodes, func(k *controller.Kit, node *corev1.Node) []string {
		return workload.PodsOn(k, node.Name)
	})},
	Writes: []controller.Permission{controller.Delete(core.Pods.Def), controller.Patch(core.Pods.Def, "status")},
	Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Pod] {
		r := &reconciler{k: k, pods: controller.For(k, core.Pods), nodes: controller.For(k, core.Nodes)}
		r.mu.since = map[string]stay{}
		return r
	},
})

type reconciler struct {
	k     *controller.Kit
	pods  controller.Client[*corev1.Pod]
	nodes controller.Client[*corev1.Node]
	mu    struct {
		sync.Mutex
		since map[string]stay // pods that stay for a time only, by key
	}
}

// stay is since when a pod has been on a tainted node, as this process saw it.
type stay struct {
	uid  types.UID
	from time.Time
}

// Reconcile evicts the pod now, plans to, or lets it stay.
func (r *reconciler) Reconcile(ctx context.Context, pod *corev1.Pod) (controller.Next, error) {
	key := cache.Key(pod.Namespace, pod.Name)
	node, ok := r.nodes.Get("", pod.Spec.NodeName)
	if !ok || pod.DeletionTimestamp != nil || core.PodTerminal(pod) {
		r.forget(key)
		return controller.Done, nil
	}
	limit, limited := tolerated(pod, node)
	if !limited {
		if r.forget(key) {
			r.k.Events.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction",
				fmt.Sprintf("Cancelling deletion of Pod %s/%s", pod.Namespace, pod.Name))
		}
		return controller.Done, nil
	}
	if limit > 0 {
		if wait := time.Until(r.start(key, pod.UID).Add(limit)); wait > 0 {
			return controller.After(wait), nil
		}
	}
	return controller.Done, r.evict(ctx, pod)
}

// Gone forgets a pod.
func (r *reconciler) Gone(_ context.Context, key string) error {
	r.forget(key)
	return nil
}

// tolerated is how long a pod tolerates the NoExecute taints of its node: of the
// first toleration that fits each, the shortest limit. limited is false if it may
// stay for ever.
func tolerated(pod *corev1.Pod, node *corev1.Node) (limit time.Duration, limited bool) {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		at := slices.IndexFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.ToleratesTaint(klog.Background(), taint, false)
		})
		if at < 0 {
			return 0, true
		}
		if s := pod.Spec.Tolerations[at].TolerationSeconds; s != nil {
			if d := time.Duration(max(0, *s)) * time.Second; !limited || d < limit {
				limit, limited = d, true
			}
		}
	}
	return limit, limited
}

func (r *reconciler) start(key string, uid types.UID) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.mu.since[key]
	if !ok || s.uid != uid {
		s = stay{uid, time.Now()}
		r.mu.since[key] = s
	}
	return s.from
}

func (r *reconciler) forget(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.mu.since[key]
	delete(r.mu.since, key)
	return known
}

func (r *reconciler) evict(ctx context.Context, pod *corev1.Pod) error {
	r.k.Events.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction",
		fmt.Sprintf("Marking for deletion Pod %s/%s", pod.Namespace, pod.Name))
	pod, err := r.pods.StrategicPatch(ctx, pod, "status", map[string]any{"status": map[string]any{
		"conditions": []any{map[string]any{
			"type": corev1.DisruptionTarget, "status": corev1.ConditionTrue, "reason": "DeletionByTaintManager",
			"message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": metav1.Now(),
		}},
	}})
	if err == nil {
		err = r.pods.Delete(ctx, pod)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
