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
		r := &reconciler{k: k, pods: controller.For(k, core.Pods), nodes: controller.For(k, core.Nodes), metrics: controller.OwnMetrics(k, newMetrics)}
		r.mu.since = map[string]stay{}
		return r
	},
})

type reconciler struct {
	k       *controller.Kit
	pods    controller.Client[*corev1.Pod]
	nodes   controller.Client[*corev1.Node]
	metrics *metrics
	mu      struct {
		sync.Mutex
		since map[string]stay // pods that stay for a time only, by key
	}
}

// stay is since when a pod has only been tolerated for a time. It is kept as long
// as that lasts, whatever becomes of the taints, and of the clock.
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
	t, limited := tolerated(pod, node)
	if !limited {
		if r.forget(key) {
			r.k.Events.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction",
				fmt.Sprintf("Cancelling deletion of Pod %s/%s", pod.Namespace, pod.Name))
		}
		return controller.Done, nil
	}
	due := time.Now()
	if t.limit > 0 {
		due = r.start(key, pod, t.since).Add(t.limit)
		if wait := time.Until(due); wait > 0 {
			return controller.After(wait), nil
		}
	}
	return controller.Done, r.evict(ctx, pod, due)
}

// Gone forgets a pod.
func (r *reconciler) Gone(_ context.Context, key string) error {
	r.forget(key)
	return nil
}

// tolerance is how long a pod stays on a tainted node.
type tolerance struct {
	limit time.Duration // the shortest of those of the taints
	since time.Time     // when the first of the taints came that are tolerated for a time; zero: nobody says
}

// tolerated is how long a pod tolerates the NoExecute taints of its node, each by
// the first toleration that fits. limited is false if it may stay for ever.
func tolerated(pod *corev1.Pod, node *corev1.Node) (t tolerance, limited bool) {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		at := slices.IndexFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.ToleratesTaint(klog.Logger{}, taint, true) // values are compared as the scheduler does
		})
		if at < 0 {
			return tolerance{}, true
		}
		s := pod.Spec.Tolerations[at].TolerationSeconds
		if s == nil {
			continue
		}
		if d := time.Duration(max(0, *s)) * time.Second; !limited || d < t.limit {
			t.limit = d
		}
		limited = true
		if added := taint.TimeAdded; added != nil && (t.since.IsZero() || added.Time.Before(t.since)) {
			t.since = added.Time
		}
	}
	return t, limited
}

// start is since when the time of a pod runs: since the taint came, but not since
// before the pod did. Where that is not known, or has yet to be, it is now. What
// was found first is kept.
func (r *reconciler) start(key string, pod *corev1.Pod, tainted time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.mu.since[key]
	if !ok || s.uid != pod.UID {
		s = stay{pod.UID, time.Now()}
		if !tainted.IsZero() {
			if came := cameTo(pod); came.After(tainted) {
				tainted = came
			}
			s.from = s.from.Add(-max(0, time.Since(tainted))) // by the clock that is not set
		}
		r.mu.since[key] = s
	}
	return s.from
}

// cameTo is when a pod came to its node.
func cameTo(pod *corev1.Pod) time.Time {
	if c := core.PodCondition(&pod.Status, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

func (r *reconciler) forget(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.mu.since[key]
	delete(r.mu.since, key)
	return known
}

// evict deletes a pod that has to go from a time on.
func (r *reconciler) evict(ctx context.Context, pod *corev1.Pod, due time.Time) error {
	r.k.Events.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction",
		fmt.Sprintf("Marking for deletion Pod %s/%s", pod.Namespace, pod.Name))
	pod, err := r.pods.StrategicPatch(ctx, pod, "status", map[string]any{"status": map[string]any{
		"conditions": []any{map[string]any{
			"type": corev1.DisruptionTarget, "status": corev1.ConditionTrue, "reason": "DeletionByTaintManager",
			"message": "Taint manager: deleting due to NoExecute taint", "observedGeneration": pod.Generation, "lastTransitionTime": metav1.Now(),
		}},
	}})
	if err == nil {
		err = r.pods.DeleteByUID(ctx, pod) // how it fares meanwhile decides nothing
		if err == nil {
			r.metrics.Gone(due)
		}
		if workload.Gone(err) {
			return nil
		}
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
