package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// RoleBindings grant a role within one namespace.
var RoleBindings = resource.Define(resource.Spec[*rbacv1.RoleBinding]{
	Names:   resource.Names{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding", Plural: "rolebindings", Namespaced: true, NameRule: resource.PathSegment},
	Update:  resource.UpdateCreates,
	Default: func(rb *rbacv1.RoleBinding) { defaultBinding(&rb.RoleRef, rb.Subjects) },
	Validate: func(obj, old *rbacv1.RoleBinding, errs *resource.Errors) {
		validateBinding(obj.RoleRef, obj.Subjects, true, errs)
		if old != nil && obj.RoleRef != old.RoleRef {
			errs.Invalid("roleRef", obj.RoleRef, "cannot change roleRef")
		}
	},
	Columns: bindingColumns(func(rb *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return rb.RoleRef, rb.Subjects }),
	Versions: []resource.Version[*rbacv1.RoleBinding]{resource.SameWire[*rbacv1beta1.RoleBinding](resource.Version[*rbacv1.RoleBinding]{
		Group: "rbac.authorization.k8s.io", Version: "v1beta1",
		Deprecated: "rbac.authorization.k8s.io/v1beta1 RoleBinding is deprecated in v1.17+, unavailable in v1.22+; use rbac.authorization.k8s.io/v1 RoleBinding",
	})},
})
