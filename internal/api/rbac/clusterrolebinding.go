package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// ClusterRoleBindings grant a cluster role everywhere.
var ClusterRoleBindings = resource.Define(resource.Spec[*rbacv1.ClusterRoleBinding]{
	Names:   resource.Names{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding", Plural: "clusterrolebindings", NameRule: resource.PathSegment},
	Update:  resource.UpdateCreates,
	Default: func(rb *rbacv1.ClusterRoleBinding) { defaultBinding(&rb.RoleRef, rb.Subjects) },
	Validate: func(obj, old *rbacv1.ClusterRoleBinding, errs *resource.Errors) {
		validateBinding(obj.RoleRef, obj.Subjects, false, errs)
		if old != nil && obj.RoleRef != old.RoleRef {
			errs.Invalid("roleRef", obj.RoleRef, "cannot change roleRef")
		}
	},
	Columns: bindingColumns(func(rb *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return rb.RoleRef, rb.Subjects }),
	Versions: []resource.Version[*rbacv1.ClusterRoleBinding]{resource.SameWire[*rbacv1beta1.ClusterRoleBinding](resource.Version[*rbacv1.ClusterRoleBinding]{
		Group: "rbac.authorization.k8s.io", Version: "v1beta1",
		Deprecated: "rbac.authorization.k8s.io/v1beta1 ClusterRoleBinding is deprecated in v1.17+, unavailable in v1.22+; use rbac.authorization.k8s.io/v1 ClusterRoleBinding",
	})},
})
