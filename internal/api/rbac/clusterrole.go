package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/kemudi/kemudi/internal/resource"
)

// ClusterRoles hold rules for the whole cluster.
var ClusterRoles = resource.Define(resource.Spec[*rbacv1.ClusterRole]{
	Names:    resource.Names{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Plural: "clusterroles", NameRule: resource.PathSegment},
	Update:   resource.UpdateCreates,
	Validate: validateClusterRole,
	Columns:  createdAt[*rbacv1.ClusterRole](), Ageless: true,
	Versions: []resource.Version[*rbacv1.ClusterRole]{resource.SameWire[*rbacv1beta1.ClusterRole](resource.Version[*rbacv1.ClusterRole]{
		Group: "rbac.authorization.k8s.io", Version: "v1beta1",
		Deprecated: "rbac.authorization.k8s.io/v1beta1 ClusterRole is deprecated in v1.17+, unavailable in v1.22+; use rbac.authorization.k8s.io/v1 ClusterRole",
	})},
})

func validateClusterRole(obj, _ *rbacv1.ClusterRole, errs *resource.Errors) {
	for i := range obj.Rules {
		validateRule(&obj.Rules[i], false, errs.At("rules[%d]", i))
	}
	if obj.AggregationRule == nil {
		return
	}
	selectors := obj.AggregationRule.ClusterRoleSelectors
	if len(selectors) == 0 {
		errs.Required("aggregationRule.clusterRoleSelectors", "at least one clusterRoleSelector required if aggregationRule is non-nil")
	}
	for i := range selectors {
		at := errs.At("aggregationRule.clusterRoleSelectors[%d]", i)
		errs.Add(metavalidation.ValidateLabelSelector(&selectors[i], metavalidation.LabelSelectorValidationOptions{}, at.Path(""))...)
	}
}
