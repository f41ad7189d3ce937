package action

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/resource"
)

// maxDisrupted is how many evictions of one budget may be unconfirmed by its controller.
const maxDisrupted = 2000

// evict deletes a pod if its disruption budget allows it (pods/eviction).
func (a *Actions) evict(ctx context.Context, q *Request) (runtime.Object, error) {
	e, err := bodyOf[*policyv1.Eviction](q)
	if err != nil {
		return nil, err
	}
	if e.Name != "" && e.Name != q.Name {
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
	obj, err := q.API.Get(ctx)
	if err != nil {
		return nil, err
	}
	pod := obj.(*corev1.Pod)
	if !pastDisruption(pod) {
		if err := a.spendBudget(ctx, q, pod); err != nil {
			return nil, err
		}
		if err := markDisrupted(ctx, q); err != nil {
			return nil, err
		}
	}
	if err := q.API.Delete(ctx, options); err != nil {
		return nil, err
	}
	return done(), nil
}

// pastDisruption reports that a pod's end disturbs nobody any more.
func pastDisruption(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return pod.DeletionTimestamp != nil
}

// spendBudget takes one disruption from the pod's budget, if it has one.
func (a *Actions) spendBudget(ctx context.Context, q *Request, pod *corev1.Pod) error {
	budgets := a.Cache(policy.PodDisruptionBudgets.Def)
	if budgets == nil {
		return nil
	}
	var found *policyv1.PodDisruptionBudget
	for _, it := range budgets.List(pod.Namespace, nil) {
		pdb := it.Object.(*policyv1.PodDisruptionBudget)
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if found != nil {
			return apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")) //nolint:staticcheck // upstream's text
		}
		found = pdb
	}
	if found == nil || unguarded(pod, found) {
		return nil
	}
	_, err := q.API.Write(ctx, Change{Def: policy.PodDisruptionBudgets.Def, Name: found.Name, Own: true, Make: func(old resource.Object) (resource.Object, error) {
		return spent(old.(*policyv1.PodDisruptionBudget), pod.Name)
	}})
	return err
}

// unguarded: an unhealthy pod may go without the budget's consent if the
// budget says so, or has enough healthy ones.
func unguarded(pod *corev1.Pod, pdb *policyv1.PodDisruptionBudget) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return false
		}
	}
	if p := pdb.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return pdb.Status.CurrentHealthy >= pdb.Status.DesiredHealthy && pdb.Status.DesiredHealthy > 0
}

// spent returns the budget with one disruption less, or why there is none.
func spent(old *policyv1.PodDisruptionBudget, pod string) (resource.Object, error) {
	gr := policy.PodDisruptionBudgets.GroupResource()
	status := &old.Status
	switch {
	case status.ObservedGeneration < old.Generation:
		return nil, tooManyDisruptions(old, 10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", old.Name))
	case status.DisruptionsAllowed < 0:
		return nil, apierrors.NewForbidden(gr, old.Name, errors.New("pdb disruptions allowed is negative"))
	case len(status.DisruptedPods) > maxDisrupted:
		return nil, apierrors.NewForbidden(gr, old.Name, errors.New("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case status.DisruptionsAllowed == 0:
		return nil, tooManyDisruptions(old, 0,
			fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", old.Name, status.DesiredHealthy, status.CurrentHealthy))
	}
	pdb := old.DeepCopy()
	pdb.ResourceVersion = ""
	pdb.Status.DisruptionsAllowed--
	if pdb.Status.DisruptionsAllowed == 0 {
		meta.SetStatusCondition(&pdb.Status.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Reason: policyv1.InsufficientPodsReason,
			Status: metav1.ConditionFalse, ObservedGeneration: pdb.Status.ObservedGeneration,
		})
	}
	if pdb.Status.DisruptedPods == nil {
		pdb.Status.DisruptedPods = map[string]metav1.Time{}
	}
	pdb.Status.DisruptedPods[pod] = metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	return pdb, nil
}

func tooManyDisruptions(pdb *policyv1.PodDisruptionBudget, retry int, why string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retry)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	err.ErrStatus.Details.Name = pdb.Name
	return err
}

// markDisrupted notes in the pod's status why it goes.
func markDisrupted(ctx context.Context, q *Request) error {
	_, err := q.API.Write(ctx, Change{Own: true, Make: func(old resource.Object) (resource.Object, error) {
		pod := old.(*corev1.Pod).DeepCopy()
		pod.ResourceVersion = ""
		want := corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
			LastTransitionTime: metav1.NewTime(time.Now().UTC().Truncate(time.Second)),
		}
		for i := range pod.Status.Conditions {
			if pod.Status.Conditions[i].Type == want.Type {
				pod.Status.Conditions[i] = want
				return pod, nil
			}
		}
		pod.Status.Conditions = append(pod.Status.Conditions, want)
		return pod, nil
	}})
	return err
}
