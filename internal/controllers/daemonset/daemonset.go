package daemonset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/workload"
)

// burst is how many pods one reconcile creates or deletes at the most.
const burst = 250

var selection = controller.NewSelection(apps.DaemonSets, controller.Claiming(func(ds *appsv1.DaemonSet) *metav1.LabelSelector {
	return ds.Spec.Selector
}))

// Controller is the daemonset controller.
var Controller = controller.New(controller.Spec[*appsv1.DaemonSet]{
	Name:   "daemon-set-controller",
	Source: "daemonset-controller",
	For:    apps.DaemonSets,
	Watches: []controller.Watch{
		controller.Owned(core.Pods.Def, "DaemonSet"), selection.Adopters(core.Pods.Def),
		controller.Owned(apps.ControllerRevisions.Def, "DaemonSet"), selection.Adopters(apps.ControllerRevisions.Def),
		nodes,
	},
	Writes: []controller.Permission{
		controller.Create(core.Pods.Def), controller.Delete(core.Pods.Def), controller.Patch(core.Pods.Def, ""),
		controller.Create(apps.ControllerRevisions.Def), controller.Update(apps.ControllerRevisions.Def),
		controller.Patch(apps.ControllerRevisions.Def, ""), controller.Delete(apps.ControllerRevisions.Def),
		controller.UpdateStatus(apps.DaemonSets.Def),
	},
	Setup: func(k *controller.Kit) controller.Reconciler[*appsv1.DaemonSet] {
		sets := controller.For(k, apps.DaemonSets)
		return &reconciler{
			k: k, sets: sets, pods: controller.For(k, core.Pods), nodes: controller.For(k, core.Nodes),
			history: workload.History[*appsv1.DaemonSet]{
				Revisions: controller.For(k, apps.ControllerRevisions), Owners: sets, HashLabel: appsv1.DefaultDaemonSetUniqueLabelKey,
			},
		}
	},
})

// nodes wakes the sets that have a place for pods on a node that comes, goes, or
// gets other labels or taints.
var nodes = controller.Watch{
	Def: core.Nodes.Def,
	Keys: func(k *controller.Kit, obj resource.Object) []string {
		var keys []string
		for _, ds := range controller.For(k, apps.DaemonSets).List("", nil) {
			if _, stays := newFit(&ds.Spec.Template).on(obj.(*corev1.Node)); stays {
				keys = append(keys, cache.Key(ds.Namespace, ds.Name))
			}
		}
		return keys
	},
	Same: func(before, after resource.Object) bool {
		return maps.Equal(before.GetLabels(), after.GetLabels()) &&
			equality.Semantic.DeepEqual(before.(*corev1.Node).Spec.Taints, after.(*corev1.Node).Spec.Taints)
	},
}

type reconciler struct {
	k       *controller.Kit
	sets    controller.Client[*appsv1.DaemonSet]
	pods    controller.Client[*corev1.Pod]
	nodes   controller.Client[*corev1.Node]
	history workload.History[*appsv1.DaemonSet]
	failed  backoff
}

// Gone forgets what failed.
func (r *reconciler) Gone(_ context.Context, key string) error {
	r.failed.forget(key)
	return nil
}

// Reconcile moves a DaemonSet one step on: what it creates and deletes wakes it
// for the next.
func (r *reconciler) Reconcile(ctx context.Context, ds *appsv1.DaemonSet) (controller.Next, error) {
	sel, err := workload.Selector(ds.Spec.Selector, &ds.Spec.Template)
	if err != nil {
		r.k.Events.Event(ds, corev1.EventTypeWarning, "InvalidSelector", err.Error())
		return controller.Done, nil
	}
	if sel.Empty() {
		r.k.Events.Event(ds, corev1.EventTypeWarning, "SelectingAll", "This daemon set is selecting all pods. A non-empty selector is required.")
		return controller.Done, nil
	}
	if ds.DeletionTimestamp != nil {
		return controller.Done, nil // its pods go with it, or stay
	}
	revisions, err := r.history.Sync(ctx, workload.Revised[*appsv1.DaemonSet]{
		Owner: ds, Selector: sel, Template: &ds.Spec.Template, Collisions: ds.Status.CollisionCount,
	})
	if workload.NamespaceEnds(err) {
		return controller.Done, nil
	}
	if err != nil {
		return controller.Done, err
	}
	pods, err := controller.Claimer[*corev1.Pod, *appsv1.DaemonSet]{Children: r.pods, Owners: r.sets}.Claim(ctx, ds, sel)
	if err != nil {
		return controller.Done, err
	}
	if err := r.rename(ctx, revisions, pods); err != nil {
		return controller.Done, err
	}
	s := newSpread(ds, r.nodes.List("", nil), pods)
	s.hash, s.now = revisions.Present.Labels[appsv1.DefaultDaemonSetUniqueLabelKey], time.Now()
	s.held = func(node string) time.Duration { return r.failed.held(ds, node, s.now) }
	next := s.next()
	err = errors.Join(r.act(ctx, s, next), r.report(ctx, s, revisions.Collisions))
	if err != nil {
		return controller.Done, err
	}
	if err := r.truncate(ctx, ds, revisions, pods); err != nil {
		return controller.Done, err
	}
	wait := next.wait
	if left, ok := workload.NextAvailable(pods, ds.Spec.MinReadySeconds, s.now); ok {
		wait = soonest(wait, left)
	}
	if wait > 0 {
		return controller.After(wait), nil
	}
	return controller.Done, nil
}

// rename lets the pods of a revision that holds the present template, too, be of the present
// one: they are not replaced for the sake of a name.
func (r *reconciler) rename(ctx context.Context, revisions workload.Revisions, pods []*corev1.Pod) error {
	const label = appsv1.DefaultDaemonSetUniqueLabelKey
	hash := revisions.Present.Labels[label]
	for _, twin := range revisions.Twins {
		for i, pod := range pods {
			if has := pod.Labels[label]; has == hash || has != twin.Labels[label] {
				continue
			}
			named, err := r.pods.StrategicPatch(ctx, pod, "", map[string]any{"metadata": map[string]any{"labels": map[string]string{label: hash}}})
			switch {
			case err == nil:
				pods[i] = named
			case !apierrors.IsNotFound(err):
				return fmt.Errorf("label pod %s: %w", pod.Name, err)
			}
		}
	}
	return nil
}

// act creates and deletes pods.
func (r *reconciler) act(ctx context.Context, s *spread, next step) error {
	if len(next.create)+len(next.remove) == 0 {
		return nil
	}
	pods := workload.Pods{Client: r.pods, Events: r.k.Events}
	template := podTemplate(s.ds, s.hash)
	_, failed := pods.Create(ctx, s.ds, min(len(next.create), burst), func(i int) *corev1.Pod {
		pod := workload.PodFromTemplate(template, s.ds, apps.DaemonSets.Def)
		pod.Spec.Affinity = onNode(pod.Spec.Affinity, next.create[i])
		return pod
	})
	var doomed []*corev1.Pod
	for _, p := range next.remove[:min(len(next.remove), burst)] {
		if p.finished {
			r.tell(s, p.pod)
		}
		doomed = append(doomed, p.pod)
	}
	_, err := pods.Delete(ctx, s.ds, doomed)
	return errors.Join(failed, err)
}

// tell says that a pod has ended and is about to be replaced.
func (r *reconciler) tell(s *spread, pod *corev1.Pod) {
	node := nodeOf(pod)
	if pod.Status.Phase == corev1.PodSucceeded {
		r.k.Events.Event(s.ds, corev1.EventTypeNormal, "SucceededDaemonPod",
			fmt.Sprintf("Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name, node))
		return
	}
	r.failed.removed(s.ds, node, s.now)
	r.k.Events.Event(s.ds, corev1.EventTypeWarning, "FailedDaemonPod",
		fmt.Sprintf("Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, node))
}

// truncate drops revisions beyond the limit of the history that no pod has.
func (r *reconciler) truncate(ctx context.Context, ds *appsv1.DaemonSet, revisions workload.Revisions, pods []*corev1.Pod) error {
	if ds.Spec.RevisionHistoryLimit == nil {
		return nil
	}
	return r.history.Truncate(ctx, revisions, *ds.Spec.RevisionHistoryLimit, func(rev *appsv1.ControllerRevision) bool {
		hash := rev.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]
		return slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == hash })
	})
}

func (r *reconciler) report(ctx context.Context, s *spread, collisions *int32) error {
	status := s.status(collisions)
	if equality.Semantic.DeepEqual(status, s.ds.Status) {
		return nil
	}
	ds := s.ds.DeepCopy()
	ds.Status = status
	if _, err := r.sets.UpdateStatus(ctx, ds); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("update status: %w", err)
	}
	return nil
}
