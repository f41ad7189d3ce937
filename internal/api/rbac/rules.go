package rbac

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/resource"
)

// validateRule checks one rule of a role; errs is at the rule.
func validateRule(rule *rbacv1.PolicyRule, namespaced bool, errs *resource.Errors) {
	if len(rule.Verbs) == 0 {
		errs.Required("verbs", "verbs must contain at least one value")
	}
	if len(rule.NonResourceURLs) > 0 {
		if namespaced {
			errs.Invalid("nonResourceURLs", rule.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs")
		}
		if len(rule.APIGroups) > 0 || len(rule.Resources) > 0 || len(rule.ResourceNames) > 0 {
			errs.Invalid("nonResourceURLs", rule.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs")
		}
		return
	}
	if len(rule.APIGroups) == 0 {
		errs.Required("apiGroups", "resource rules must supply at least one api group")
	}
	if len(rule.Resources) == 0 {
		errs.Required("resources", "resource rules must supply at least one resource")
	}
}

// createdAt is the one column that roles have instead of an age.
func createdAt[T resource.Object]() []resource.Column[T] {
	return []resource.Column[T]{{Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"], Value: func(obj T) any {
		return obj.GetCreationTimestamp().UTC().Format(time.RFC3339)
	}}}
}
