package usage

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Scopes are all that an object must be in for a quota to be about it.
func Scopes(q *corev1.ResourceQuota) []corev1.ScopedResourceSelectorRequirement {
	var all []corev1.ScopedResourceSelectorRequirement
	for _, name := range q.Spec.Scopes {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		all = append(all, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return all
}

// selects says whether one of the values that an object has, which may be none,
// is what a scope asks for.
func selects(scope *corev1.ScopedResourceSelectorRequirement, has ...string) bool {
	wanted := func(value string) bool { return slices.Contains(scope.Values, value) }
	switch scope.Operator {
	case corev1.ScopeSelectorOpExists:
		return len(has) > 0
	case corev1.ScopeSelectorOpDoesNotExist:
		return len(has) == 0
	case corev1.ScopeSelectorOpIn:
		return slices.ContainsFunc(has, wanted)
	case corev1.ScopeSelectorOpNotIn:
		return len(has) == 0 || slices.ContainsFunc(has, func(value string) bool { return !wanted(value) })
	}
	return false
}
