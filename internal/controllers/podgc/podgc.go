package podgc

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/workload"
)

// quarantine is how long a node must be missing before its pods go: it may just
// be registering.
const quarantine = 40 * time.Second

// Options configure the controller. The zero value is upstream's.
type Options struct {
	// Threshold is how many finished pods are kept (--terminated-pod-gc-threshold;
	// negative: all of them).
	Threshold int
}

// Defaults are the options of a controller that is given none.
func Defaults() Options { return Options{}.withDefaults() }

func (o Options) withDefaults() Options {
	o.Threshold = cmp.Or(o.Threshold, 12500)
	return o
}

// New returns the pod garbage collector.
func New(o Options) *controller.Controller {
	threshold := o.withDefaults().Threshold
	return controller.New(controller.Spec[*corev1.Pod]{
		Name:    "pod-garbage-collector",
		For:     core.Pods,
		Watches: []controller.Watch{controller.Mapped(core.Nodes, podsOf)},
		Writes:  []controller.Permission{controller.Delete(core.Pods.Def), controller.Patch(core.Pods.Def, "status")},
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Pod] {
			r := &reconciler{
				threshold: threshold, pods: controller.For(k, core.Pods), nodes: controller.For(k, core.Nodes), metrics: controller.OwnMetrics(k, newMetrics),
			}
			r.mu.missing, r.mu.finished = map[string]time.Time{}, newFinished()
			return r
		},
	})
}

// podsOf wakes the pods of a node that is gone or out of service.
func podsOf(k *controller.Kit, node *corev1.Node) []string {
	if now, ok := controller.For(k, core.Nodes).Get("", node.Name); ok && !outOfService(now) {
		return nil
	}
	return workload.PodsOn(k, node.Name)
}

// outOfService says that the node does not answer, and that a person has marked
// it as not coming back: what runs there may be taken for stopped.
func outOfService(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return false
		}
	}
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

type reconciler struct {
	threshold int
	pods      controller.Client[*corev1.Pod]
	nodes     controller.Client[*corev1.Node]
	metrics   *metrics
	mu        struct {
		sync.Mutex
		missing  map[string]time.Time // node name: since when it has been missed
		finished *finished            // pods that are not being deleted
	}
}

// Reconcile looks at one pod.
func (r *reconciler) Reconcile(ctx context.Context, pod *corev1.Pod) (controller.Next, error) {
	if pod.Spec.NodeName == "" {
		if pod.DeletionTimestamp != nil {
			return controller.Done, r.remove(ctx, pod, neverStarted)
		}
		return controller.Done, r.limit(ctx, pod)
	}
	if node, ok := r.nodes.Get("", pod.Spec.NodeName); ok && pod.DeletionTimestamp != nil && outOfService(node) {
		return controller.Done, r.remove(ctx, pod, lostForGood)
	}
	if wait, gone := r.missingFor(pod.Spec.NodeName); gone {
		if wait > 0 {
			return controller.After(wait), nil
		}
		_, err := r.nodes.Live(ctx, "", pod.Spec.NodeName)
		if apierrors.IsNotFound(err) {
			return controller.Done, r.remove(ctx, pod, orphaned)
		}
		return controller.Done, err
	}
	return controller.Done, r.limit(ctx, pod)
}

// Gone forgets a finished pod.
func (r *reconciler) Gone(_ context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.finished.remove(key)
	return nil
}

// missingFor says whether the node is missing, and how much of the quarantine is left.
func (r *reconciler) missingFor(node string) (left time.Duration, missing bool) {
	_, ok := r.nodes.Get("", node)
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok {
		delete(r.mu.missing, node)
		return 0, false
	}
	since, known := r.mu.missing[node]
	if !known {
		since = time.Now()
		r.mu.missing[node] = since
	}
	return quarantine - time.Since(since), true
}

// limit removes the oldest finished pods beyond the threshold.
func (r *reconciler) limit(ctx context.Context, pod *corev1.Pod) error {
	surplus := r.note(pod)
	for i, old := range surplus {
		p, ok := r.pods.Get(old.namespace, old.name)
		if !ok {
			continue
		}
		if err := r.remove(ctx, p, terminated); err != nil {
			r.keep(surplus[i:]) // it is tried again
			return err
		}
	}
	return nil
}

// note takes in a pod and takes out those that are over the threshold.
func (r *reconciler) note(pod *corev1.Pod) (surplus []*ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !core.PodTerminal(pod) || pod.DeletionTimestamp != nil {
		r.mu.finished.remove(cache.Key(pod.Namespace, pod.Name))
		return nil
	}
	if r.threshold < 0 {
		return nil
	}
	r.mu.finished.set(newEnded(pod))
	for r.mu.finished.Len() > r.threshold {
		surplus = append(surplus, r.mu.finished.first())
	}
	return surplus
}

// keep puts pods back.
func (r *reconciler) keep(pods []*ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range pods {
		r.mu.finished.set(p)
	}
}

// remove deletes a pod at once.
func (r *reconciler) remove(ctx context.Context, pod *corev1.Pod, why cause) error {
	err := r.end(ctx, pod, why)
	r.metrics.count(pod.Namespace, why, err)
	return err
}

// end is remove. A pod that had not finished is marked as failed first, for whoever counts
// its failures; of one whose node is gone is said that it was not its own doing.
func (r *reconciler) end(ctx context.Context, pod *corev1.Pod, why cause) error {
	if !core.PodTerminal(pod) {
		status := map[string]any{"phase": corev1.PodFailed}
		if why == orphaned {
			status["conditions"] = []any{map[string]any{
				"type": corev1.DisruptionTarget, "status": corev1.ConditionTrue, "reason": "DeletionByPodGC",
				"message": "PodGC: node no longer exists", "observedGeneration": pod.Generation, "lastTransitionTime": metav1.Now(),
			}}
		}
		patched, err := r.pods.StrategicPatch(ctx, pod, "status", map[string]any{"status": status})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("mark pod as failed: %w", err)
		}
		pod = patched
	}
	err := r.pods.DeleteWith(ctx, pod, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)), // it does not come to life again
	})
	if workload.Gone(err) {
		return nil
	}
	return err
}
