package replicaset

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/workload"
)

// burst is how many pods one reconcile creates or deletes at the most.
const burst = 500

// Controller is the replicaset controller.
var Controller = controller.New(controller.Spec[*appsv1.ReplicaSet]{
	Name: "replicaset-controller",
	For:  apps.ReplicaSets,
	Watches: []controller.Watch{
		controller.Owned(core.Pods.Def, "ReplicaSet"),
		controller.Adopters(core.Pods, apps.ReplicaSets, func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector }),
	},
	Writes: []controller.Permission{
		controller.Create(core.Pods.Def), controller.Delete(core.Pods.Def), controller.Patch(core.Pods.Def, ""),
		controller.UpdateStatus(apps.ReplicaSets.Def),
	},
	Setup: func(k *controller.Kit) controller.Reconciler[*appsv1.ReplicaSet] {
		return &reconciler{k: k, sets: controller.For(k, apps.ReplicaSets), pods: controller.For(k, core.Pods)}
	},
})

type reconciler struct {
	k    *controller.Kit
	sets controller.Client[*appsv1.ReplicaSet]
	pods controller.Client[*corev1.Pod]
}

// Reconcile creates or deletes pods until as many as wanted are active, and
// reports what there is.
func (r *reconciler) Reconcile(ctx context.Context, rs *appsv1.ReplicaSet) (controller.Next, error) {
	sel, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return controller.Done, fmt.Errorf("selector: %w", err)
	}
	pods, err := controller.Claimer[*corev1.Pod, *appsv1.ReplicaSet]{Children: r.pods, Owners: r.sets, Open: workload.PodActive}.Claim(ctx, rs, sel)
	if err != nil {
		return controller.Done, err
	}
	var active []*corev1.Pod
	for _, p := range pods {
		if workload.PodActive(p) {
			active = append(active, p)
		}
	}
	var failed *failure
	if rs.DeletionTimestamp == nil {
		active, failed = r.scale(ctx, rs, active)
	}
	status := newStatus(rs, pods, active, failed)
	if !equality.Semantic.DeepEqual(status, rs.Status) {
		rs = rs.DeepCopy()
		rs.Status = status
		if _, err := r.sets.UpdateStatus(ctx, rs); err != nil && !apierrors.IsNotFound(err) {
			return controller.Done, err
		}
	}
	if failed != nil {
		return controller.Done, failed.err
	}
	if wait, ok := workload.NextAvailable(active, rs.Spec.MinReadySeconds, time.Now()); ok {
		return controller.After(wait), nil
	}
	return controller.Done, nil
}

// failure is why pods could not be created or deleted. reason is that of the
// ReplicaFailure condition.
type failure struct {
	reason string
	err    error
}

// scale makes the number of active pods right and returns those that are left
// or new.
func (r *reconciler) scale(ctx context.Context, rs *appsv1.ReplicaSet, active []*corev1.Pod) ([]*corev1.Pod, *failure) {
	missing := int(*rs.Spec.Replicas) - len(active)
	switch {
	case missing > 0:
		active, err := r.create(ctx, rs, active, min(missing, burst))
		return active, newFailure("FailedCreate", err)
	case missing < 0:
		active, err := r.remove(ctx, rs, active, min(-missing, burst))
		return active, newFailure("FailedDelete", err)
	}
	return active, nil
}

func newFailure(reason string, err error) *failure {
	if err == nil {
		return nil
	}
	return &failure{reason, err}
}

func (r *reconciler) create(ctx context.Context, rs *appsv1.ReplicaSet, active []*corev1.Pod, n int) ([]*corev1.Pod, error) {
	_, err := workload.SlowStart(n, func() error {
		pod, err := r.pods.Create(ctx, workload.PodFromTemplate(&rs.Spec.Template, rs, apps.ReplicaSets.Def))
		if err != nil {
			if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				r.k.Events.Event(rs, corev1.EventTypeWarning, "FailedCreate", "Error creating: "+err.Error())
			}
			return err
		}
		r.k.Events.Event(rs, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+pod.Name)
		active = append(active, pod)
		return nil
	})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return active, nil // the set goes with its namespace
	}
	return active, err
}

func (r *reconciler) remove(ctx context.Context, rs *appsv1.ReplicaSet, active []*corev1.Pod, n int) ([]*corev1.Pod, error) {
	workload.Rank(active, r.siblings(rs), time.Now())
	for _, pod := range active[:n] {
		err := r.pods.Delete(ctx, pod)
		if apierrors.IsNotFound(err) {
			continue
		}
		if apierrors.IsConflict(err) {
			return active, err
		}
		if err != nil {
			r.k.Events.Event(rs, corev1.EventTypeWarning, "FailedDelete", "Error deleting: "+err.Error())
			return active, err
		}
		r.k.Events.Event(rs, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+pod.Name)
	}
	return active[n:], nil
}

// siblings counts, by node, the active pods of all sets with the same owner:
// a rollout then takes pods from nodes where another revision runs already.
func (r *reconciler) siblings(rs *appsv1.ReplicaSet) map[string]int {
	sets := []*appsv1.ReplicaSet{rs}
	if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
		sets = r.sets.ByIndex(resource.IndexController, string(owner.UID))
	}
	byNode := map[string]int{}
	for _, set := range sets {
		for _, p := range r.pods.ByIndex(resource.IndexController, string(set.UID)) {
			if workload.PodActive(p) {
				byNode[p.Spec.NodeName]++
			}
		}
	}
	return byNode
}
