package disruption

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// staleAfter is how long a pod may be about to be disrupted without being deleted.
const staleAfter = 2 * time.Minute

// Pods takes back what was said of pods that were to be disrupted and have not
// been, and tells of pods that have several budgets. Its keys are pods. (In
// upstream this is a second queue of the disruption controller.)
var Pods = controller.NewKeyed(controller.Keyed{
	Name:   "disruption-pod-controller",
	Source: eventSource,
	Watches: []controller.Watch{{Def: core.Pods.Def, Selection: selection, Keys: func(k *controller.Kit, obj resource.Object) []string {
		if p := obj.(*corev1.Pod); !announced(p) && len(k.Selecting(selection, p)) < 2 {
			return nil
		}
		return []string{cache.Key(obj.GetNamespace(), obj.GetName())}
	}}},
	Reads:  []*resource.Def{policy.PodDisruptionBudgets.Def},
	Writes: []controller.Permission{controller.UpdateStatus(core.Pods.Def)},
	Setup: func(k *controller.Kit) func(ctx context.Context, key string) (controller.Next, error) {
		return (&watcher{k: k, pods: controller.For(k, core.Pods)}).look
	},
})

type watcher struct {
	k    *controller.Kit
	pods controller.Client[*corev1.Pod]
}

// look looks after one pod.
func (w *watcher) look(ctx context.Context, key string) (controller.Next, error) {
	namespace, name, _ := strings.Cut(key, "/")
	pod, ok := w.pods.Get(namespace, name)
	if !ok {
		return controller.Done, nil
	}
	if budgets := w.k.Selecting(selection, pod); len(budgets) > 1 {
		_, first, _ := strings.Cut(budgets[0], "/")
		w.k.Events.Event(pod, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets",
			fmt.Sprintf("Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.", namespace, name, first))
	}
	if !announced(pod) {
		return controller.Done, nil
	}
	if wait := time.Until(core.PodCondition(&pod.Status, corev1.DisruptionTarget).LastTransitionTime.Add(staleAfter)); wait > 0 {
		return controller.After(wait), nil
	}
	pod = pod.DeepCopy()
	core.SetPodCondition(&pod.Status, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, ObservedGeneration: pod.Generation})
	_, err := w.pods.UpdateStatus(ctx, pod)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return controller.Done, err
}

// announced says that the pod is to be disrupted and runs on. What its own node
// agent announces may take as long as it takes.
func announced(p *corev1.Pod) bool {
	c := core.PodCondition(&p.Status, corev1.DisruptionTarget)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason != corev1.PodReasonTerminationByKubelet &&
		p.DeletionTimestamp == nil && !core.PodTerminal(p)
}
