package policy

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// BudgetSelector is what a budget selects: everything in its namespace if the
// selector is empty, nothing (nil) if it has none or one that nobody understands.
func BudgetSelector(b *policyv1.PodDisruptionBudget) labels.Selector {
	sel, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil || b.Spec.Selector == nil {
		return nil
	}
	return sel
}

// Covers says that a budget is about a pod.
func Covers(b *policyv1.PodDisruptionBudget, p *corev1.Pod) bool {
	sel := BudgetSelector(b)
	return sel != nil && b.Namespace == p.Namespace && sel.Matches(labels.Set(p.Labels))
}

// SetDisruptionAllowed makes the condition of a status, which the caller owns, say
// what its number of allowed disruptions does.
func SetDisruptionAllowed(s *policyv1.PodDisruptionBudgetStatus) {
	c := metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, ObservedGeneration: s.ObservedGeneration,
		Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
	}
	if s.DisruptionsAllowed > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, policyv1.SufficientPodsReason
	}
	meta.SetStatusCondition(&s.Conditions, c)
}
