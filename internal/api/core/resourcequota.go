package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// ResourceQuotas is bounds of what a namespace may have in all.
var ResourceQuotas = resource.Define(resource.Spec[*corev1.ResourceQuota]{
	Names:    resource.Names{Version: "v1", Kind: "ResourceQuota", Plural: "resourcequotas", Short: []string{"quota"}, Namespaced: true},
	Deletion: resource.Deletion[*corev1.ResourceQuota]{AnswersDeleted: true},
	Default: func(q *corev1.ResourceQuota) {
		check.RoundUp(q.Spec.Hard)
		check.RoundUp(q.Status.Hard)
		check.RoundUp(q.Status.Used)
	},
	Prepare: func(q, old *corev1.ResourceQuota) {
		q.Status = corev1.ResourceQuotaStatus{}
		if old != nil {
			q.Status = old.Status
		}
	},
	Validate: validateQuota,
	Index:    map[string]func(*corev1.ResourceQuota) []string{IndexNamespace: func(q *corev1.ResourceQuota) []string { return []string{q.Namespace} }},
	Columns: []resource.Column[*corev1.ResourceQuota]{
		{
			Name:        "Request",
			Description: "Request represents a minimum amount of cpu/memory that a container may consume.",
			Value: func(q *corev1.ResourceQuota) any {
				return quotaUse(q, func(name string) bool { return !isLimit(name) })
			},
		},
		{
			Name:        "Limit",
			Description: "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
			Value:       func(q *corev1.ResourceQuota) any { return quotaUse(q, isLimit) },
		},
	},
	Sub: []resource.Sub[*corev1.ResourceQuota]{{
		Name: "status", Merge: func(q, old *corev1.ResourceQuota) { q.Spec = old.Spec },
		Validate: func(q, _ *corev1.ResourceQuota, errs *resource.Errors) {
			validateQuotaList(errs.At("status.hard"), q.Status.Hard)
			validateQuotaList(errs.At("status.used"), q.Status.Used)
		},
	}},
})

// IndexNamespace finds the quotas of a namespace.
const IndexNamespace = "namespace"

func isLimit(name string) bool { return strings.HasPrefix(name, "limits.") }

// quotaUse prints "pods: 1/10, requests.cpu: 100m/1".
func quotaUse(q *corev1.ResourceQuota, show func(name string) bool) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
		if !show(string(name)) {
			continue
		}
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		parts = append(parts, fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String()))
	}
	return strings.Join(parts, ", ")
}

func validateQuota(q, old *corev1.ResourceQuota, errs *resource.Errors) {
	validateQuotaList(errs.At("spec.hard"), q.Spec.Hard)
	validateQuotaScopes(errs.At("spec"), &q.Spec)
	if q.Spec.ScopeSelector != nil {
		validateScopeSelector(errs.At("spec.scopeSelector.matchExpressions"), &q.Spec)
	}
	if old == nil {
		return
	}
	same := func(a, b []corev1.ResourceQuotaScope) bool {
		return !slices.ContainsFunc(a, func(s corev1.ResourceQuotaScope) bool { return !slices.Contains(b, s) })
	}
	if !same(q.Spec.Scopes, old.Spec.Scopes) || !same(old.Spec.Scopes, q.Spec.Scopes) {
		errs.Immutable("spec.scopes", q.Spec.Scopes)
	}
}

func validateQuotaList(errs *resource.Errors, list corev1.ResourceList) {
	for name, q := range list {
		at := errs.At("[%s]", name)
		check.QuotaResourceName(at, "", name)
		check.Quantity(at, "", name, q)
	}
}

// quotaScopes are the parts of a namespace that a quota may be about.
var quotaScopes = []corev1.ResourceQuotaScope{
	corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort,
	corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass,
	corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ResourceQuotaScopeVolumeAttributesClass,
}

// podQuotaResources are the resources of which a scope of pods can be part.
var podQuotaResources = []corev1.ResourceName{
	corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}

// scopeFits reports whether a resource can be counted in a scope.
func scopeFits(scope corev1.ResourceQuotaScope, name corev1.ResourceName) bool {
	if !check.IsQuotaResource(name) {
		return true // what it means is not known here
	}
	switch {
	case scope == corev1.ResourceQuotaScopeBestEffort:
		return name == corev1.ResourcePods
	case scope == corev1.ResourceQuotaScopeVolumeAttributesClass:
		return name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
	}
	return slices.Contains(podQuotaResources, name)
}

func validateQuotaScopes(errs *resource.Errors, s *corev1.ResourceQuotaSpec) {
	for _, scope := range s.Scopes {
		if !slices.Contains(quotaScopes, scope) {
			errs.Invalid("scopes", s.Scopes, "unsupported scope")
		}
		for name := range s.Hard {
			if !scopeFits(scope, name) {
				errs.Invalid("scopes", s.Scopes, "unsupported scope applied to resource")
			}
		}
	}
	if conflicting(s.Scopes) {
		errs.Invalid("scopes", s.Scopes, "conflicting scopes")
	}
}

func conflicting(scopes []corev1.ResourceQuotaScope) bool {
	both := func(a, b corev1.ResourceQuotaScope) bool {
		return slices.Contains(scopes, a) && slices.Contains(scopes, b)
	}
	return both(corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort) ||
		both(corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating)
}

func validateScopeSelector(errs *resource.Errors, s *corev1.ResourceQuotaSpec) {
	var scopes []corev1.ResourceQuotaScope
	for _, r := range s.ScopeSelector.MatchExpressions {
		scopes = append(scopes, r.ScopeName)
		if !slices.Contains(quotaScopes, r.ScopeName) {
			errs.Invalid("scopeName", r.ScopeName, "unsupported scope")
		}
		for name := range s.Hard {
			if !scopeFits(r.ScopeName, name) {
				errs.Invalid("", s.ScopeSelector, "unsupported scope applied to resource")
			}
		}
		valued := r.ScopeName == corev1.ResourceQuotaScopePriorityClass || r.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass
		if slices.Contains(quotaScopes, r.ScopeName) && !valued && r.Operator != corev1.ScopeSelectorOpExists {
			errs.Invalid("operator", r.Operator, "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "+
				"ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity")
		}
		switch r.Operator {
		case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
			if len(r.Values) == 0 {
				errs.Required("values", "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
			}
		case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
			if len(r.Values) > 0 {
				errs.Invalid("values", r.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")
			}
		default:
			errs.Invalid("operator", r.Operator, "not a valid selector operator")
		}
	}
	if conflicting(scopes) {
		errs.Invalid("", scopes, "conflicting scopes")
	}
}
