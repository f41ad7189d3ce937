package action

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/resource"
)

// maxDisrupted is how many evictions of one budget may be unconfirmed by its controller.
const maxDisrupted = 2000

// maxEvictTries bounds how often an eviction starts again because the pod has changed.
const maxEvictTries = 20

// evict deletes a pod if its disruption budget allows it (pods/eviction).
func (a *Actions) evict(ctx context.Context, q *Request) (runtime.Object, error) {
	e, err := bodyOf[*policyv1.Eviction](q)
	if err != nil {
		return nil, err
	}
	if e.Name != q.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	options := e.DeleteOptions
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	if err := request.CheckDelete(options); err != nil {
		return nil, err
	}
	q.DryRun = q.DryRun || len(options.DryRun) > 0
	if err := q.API.Admit(ctx, e); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		again, err := a.evictAsSeen(ctx, q, options)
		if err == nil {
			return done(), nil
		}
		if !again || try == maxEvictTries {
			return nil, err
		}
	}
}

// evictAsSeen tries once, with the pod and its budget as they are now. again says
// that the error is only about what has changed meanwhile.
func (a *Actions) evictAsSeen(ctx context.Context, q *Request, options *metav1.DeleteOptions) (again bool, _ error) {
	obj, err := q.API.Get(ctx)
	if err != nil {
		return false, err
	}
	pod := obj.(*corev1.Pod)
	if pastDisruption(pod) {
		// One that is about to run may be ready before it is deleted.
		waiting := pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil
		err := deleteEvicted(ctx, q, asSeen(options, pod, waiting))
		return apierrors.IsConflict(err) && !namesRevision(options), err
	}
	budget, err := a.budgetOf(pod)
	if err != nil {
		return false, err
	}
	if budget == nil {
		return false, deleteEvicted(ctx, q, options)
	}
	if unguarded(pod, budget) {
		err := deleteEvicted(ctx, q, asSeen(options, pod, true))
		if apierrors.IsConflict(err) && !namesRevision(options) {
			err = stillProcessed(budget.Name) // it may be ready by now
		}
		return false, err
	}
	err = spend(ctx, q, budget.Name, pod.Name)
	switch {
	case apierrors.IsNotFound(err):
		return true, err // the budget has gone: its pod is free
	case apierrors.IsConflict(err):
		return false, apierrors.NewTimeoutError(fmt.Sprintf("couldn't update PodDisruptionBudget %q due to conflicts", budget.Name), 10)
	case err != nil:
		return false, err
	}
	return false, deleteEvicted(ctx, q, options)
}

// pastDisruption reports that a pod's end disturbs nobody (any more).
func pastDisruption(pod *corev1.Pod) bool {
	return core.PodTerminal(pod) || pod.Status.Phase == corev1.PodPending || pod.DeletionTimestamp != nil
}

// budgetOf is the budget of a pod; nil: it has none.
func (a *Actions) budgetOf(pod *corev1.Pod) (*policyv1.PodDisruptionBudget, error) {
	budgets := a.Cache(policy.PodDisruptionBudgets.Def)
	if budgets == nil {
		return nil, nil
	}
	var found *policyv1.PodDisruptionBudget
	for _, it := range budgets.List(pod.Namespace, nil) {
		budget := it.Object.(*policyv1.PodDisruptionBudget)
		if !policy.Covers(budget, pod) {
			continue
		}
		if found != nil {
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
				Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
			}}
		}
		found = budget
	}
	return found, nil
}

// unguarded: an unhealthy pod may go without the budget's consent if the
// budget says so, or has enough healthy ones.
func unguarded(pod *corev1.Pod, budget *policyv1.PodDisruptionBudget) bool {
	if core.PodReady(pod) {
		return false
	}
	if p := budget.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0
}

// spend takes one disruption from a budget.
func spend(ctx context.Context, q *Request, budget, pod string) error {
	_, err := q.API.Write(ctx, Change{Def: policy.PodDisruptionBudgets.Def, Name: budget, Own: true, Make: func(old resource.Object) (resource.Object, error) {
		return spent(old.(*policyv1.PodDisruptionBudget), pod)
	}})
	return err
}

// spent returns the budget with one disruption less, or why there is none.
func spent(old *policyv1.PodDisruptionBudget, pod string) (resource.Object, error) {
	status := &old.Status
	switch {
	case status.ObservedGeneration < old.Generation:
		return nil, stillProcessed(old.Name)
	case status.DisruptionsAllowed < 0:
		return nil, broken(old.Name, "pdb disruptions allowed is negative", "pdb disruptions allowed is negative")
	case len(status.DisruptedPods) > maxDisrupted:
		return nil, broken(old.Name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller", "too many pending evictions not confirmed by PDB controller")
	case status.DisruptionsAllowed == 0:
		return nil, wouldViolate(0, refusalOf(old))
	}
	budget := old.DeepCopy()
	budget.ResourceVersion = ""
	budget.Status.DisruptionsAllowed--
	if budget.Status.DisruptionsAllowed == 0 {
		policy.SetDisruptionAllowed(&budget.Status)
	}
	if budget.Status.DisruptedPods == nil {
		budget.Status.DisruptedPods = map[string]metav1.Time{}
	}
	budget.Status.DisruptedPods[pod] = metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	return budget, nil
}

// broken refuses an eviction by a budget whose status makes no sense.
func broken(budget, why, cause string) error {
	gr := schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}
	err := apierrors.NewForbidden(gr, budget, errors.New(why))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: %s", budget, cause),
	})
	return err
}

// refusalOf says why a budget that allows no disruption does not. What a budget
// counted before it could be counted no more is not told.
func refusalOf(b *policyv1.PodDisruptionBudget) string {
	c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	explained := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	switch {
	case explained && c.Reason == policyv1.SyncFailedReason:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", b.Name, c.Message)
	case b.Status.CurrentHealthy <= b.Status.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy)
	case explained:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s", b.Name, c.Reason, c.Message)
	}
	return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
}

// stillProcessed asks the client to come again, when the budget may say more.
func stillProcessed(budget string) error {
	return wouldViolate(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget))
}

// wouldViolate refuses an eviction. retry is after how many seconds clients may
// come again by themselves; 0: they are not asked to.
func wouldViolate(retry int, why string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retry)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}

func namesRevision(o *metav1.DeleteOptions) bool {
	return o.Preconditions != nil && o.Preconditions.ResourceVersion != nil
}

// asSeen returns the options of a deletion that fails if the pod has changed, where
// that matters and the client has not named a revision itself.
func asSeen(o *metav1.DeleteOptions, pod *corev1.Pod, matters bool) *metav1.DeleteOptions {
	if !matters || namesRevision(o) {
		return o
	}
	return atRevision(o, pod.ResourceVersion)
}

func atRevision(o *metav1.DeleteOptions, revision string) *metav1.DeleteOptions {
	o = o.DeepCopy()
	if o.Preconditions == nil {
		o.Preconditions = &metav1.Preconditions{}
	}
	o.Preconditions.ResourceVersion = &revision
	return o
}

// deleteEvicted notes in the pod's status why it goes, and deletes it.
func deleteEvicted(ctx context.Context, q *Request, options *metav1.DeleteOptions) error {
	if !q.DryRun {
		marked, err := q.API.Write(ctx, Change{Own: true, Leaving: true, If: preconditions(options), Make: func(old resource.Object) (resource.Object, error) {
			pod := old.(*corev1.Pod).DeepCopy()
			pod.ResourceVersion = ""
			core.SetPodCondition(&pod.Status, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation,
				Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
			})
			return pod, nil
		}})
		if err != nil {
			return err
		}
		if namesRevision(options) {
			options = atRevision(options, marked.GetResourceVersion())
		}
	}
	return q.API.Delete(ctx, options)
}

func preconditions(o *metav1.DeleteOptions) metav1.Preconditions {
	if o.Preconditions == nil {
		return metav1.Preconditions{}
	}
	return *o.Preconditions
}
