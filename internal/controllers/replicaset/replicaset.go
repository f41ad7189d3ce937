package replicaset

import (
	"context"
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
var Controller = newController("replicaset-controller", kind[*appsv1.ReplicaSet]{
	resource: apps.ReplicaSets,
	asSet:    func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet { return rs },
	report: func(rs *appsv1.ReplicaSet, s appsv1.ReplicaSetStatus) *appsv1.ReplicaSet {
		rs = rs.DeepCopy()
		rs.Status = s
		return rs
	},
	terminating: true,
})

// kind is what differs between the kinds of sets.
type kind[O resource.Object] struct {
	resource *resource.Resource[O]
	asSet    func(O) *appsv1.ReplicaSet         // what a ReplicaSet would be in its place; shared, read-only
	report   func(O, appsv1.ReplicaSetStatus) O // a copy with that status
	// terminating says that its status counts the pods that are ending.
	terminating bool
}

func newController[O resource.Object](name string, of kind[O]) *controller.Controller {
	return controller.New(controller.Spec[O]{
		Name: name,
		For:  of.resource,
		Watches: []controller.Watch{
			controller.Owned(core.Pods.Def, of.resource.Kind),
			controller.Adopters(core.Pods, of.resource, func(o O) *metav1.LabelSelector { return of.asSet(o).Spec.Selector }),
		},
		Writes: []controller.Permission{
			controller.Create(core.Pods.Def), controller.Delete(core.Pods.Def), controller.Patch(core.Pods.Def, ""),
			controller.UpdateStatus(of.resource.Def),
		},
		Setup: func(k *controller.Kit) controller.Reconciler[O] {
			return &reconciler[O]{k: k, kind: of, sets: controller.For(k, of.resource), pods: controller.For(k, core.Pods), metrics: controller.OwnMetrics(k, newMetrics)}
		},
	})
}

type reconciler[O resource.Object] struct {
	k       *controller.Kit
	kind    kind[O]
	sets    controller.Client[O]
	pods    controller.Client[*corev1.Pod]
	metrics *metrics
}

// Reconcile creates or deletes pods until as many as wanted are active, and
// reports what there is.
func (r *reconciler[O]) Reconcile(ctx context.Context, obj O) (controller.Next, error) {
	began := time.Now()
	rs := r.kind.asSet(obj)
	sel, err := workload.Selector(rs.Spec.Selector, &rs.Spec.Template)
	if err != nil {
		r.k.Events.Event(obj, corev1.EventTypeWarning, "InvalidSelector", err.Error())
		return controller.Done, nil
	}
	pods, err := controller.Claimer[*corev1.Pod, O]{Children: r.pods, Owners: r.sets, Open: workload.PodActive}.Claim(ctx, obj, sel)
	if err != nil {
		return controller.Done, err
	}
	var active []*corev1.Pod
	for _, p := range pods {
		if workload.PodActive(p) {
			active = append(active, p)
		}
	}
	var failed failure
	took := time.Duration(0)
	if len(active) == int(*rs.Spec.Replicas) { // what makes and removes pods does not rest
		took = time.Since(began)
	}
	if rs.DeletionTimestamp == nil {
		active, failed = r.scale(ctx, obj, active)
	}
	status := newStatus(rs, pods, active, failed)
	if !r.kind.terminating {
		status.TerminatingReplicas = nil
	}
	if !equality.Semantic.DeepEqual(status, rs.Status) {
		if _, err := r.sets.UpdateStatus(ctx, r.kind.report(obj, status)); err != nil && !apierrors.IsNotFound(err) {
			return controller.Done, err
		}
	}
	if failed.err != nil {
		return controller.Done, failed.err
	}
	next := controller.Done
	if wait, ok := workload.NextAvailable(active, rs.Spec.MinReadySeconds, time.Now()); ok {
		next = controller.After(wait)
	}
	return next.Costly(took), nil
}

// failure is why pods could not be created or deleted; err is nil if they could.
// reason is that of the ReplicaFailure condition.
type failure struct {
	reason string
	err    error
}

// tell says that people should see the failure.
func (f failure) tell() bool { return f.err != nil && !workload.Expected(f.err) }

// scale makes the number of active pods right and returns those that are left
// or new.
func (r *reconciler[O]) scale(ctx context.Context, obj O, active []*corev1.Pod) ([]*corev1.Pod, failure) {
	rs := r.kind.asSet(obj)
	missing := int(*rs.Spec.Replicas) - len(active)
	switch pods := (workload.Pods{Client: r.pods, Events: r.k.Events}); {
	case missing > 0:
		made, err := pods.Create(ctx, obj, min(missing, burst), func(int) *corev1.Pod {
			return workload.PodFromTemplate(&rs.Spec.Template, obj, r.sets.Def)
		})
		return append(active, made...), failure{"FailedCreate", err}
	case missing < 0:
		workload.Rank(active, r.siblings(obj), time.Now())
		n := min(-missing, burst, len(active))
		r.metrics.chosen(active, n, time.Now())
		left, err := pods.Delete(ctx, obj, active[:n])
		return append(left, active[n:]...), failure{"FailedDelete", err}
	}
	return active, failure{}
}

// siblings counts, by node, the active pods of all sets with the same owner:
// a rollout then takes pods from nodes where another revision runs already.
func (r *reconciler[O]) siblings(obj O) map[string]int {
	sets := []O{obj}
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		sets = r.sets.ByIndex(resource.IndexController, string(owner.UID))
	}
	byNode := map[string]int{}
	for _, set := range sets {
		for _, p := range r.pods.ByIndex(resource.IndexController, string(set.GetUID())) {
			if workload.PodActive(p) {
				byNode[p.Spec.NodeName]++
			}
		}
	}
	return byNode
}
