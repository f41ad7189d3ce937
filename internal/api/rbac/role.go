package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// Roles hold the rules of one namespace.
var Roles = resource.Define(resource.Spec[*rbacv1.Role]{
	Names:  resource.Names{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role", Plural: "roles", Namespaced: true, NameRule: resource.PathSegment},
	Update: resource.UpdateCreates,
	Validate: func(obj, _ *rbacv1.Role, errs *resource.Errors) {
		for i := range obj.Rules {
			validateRule(&obj.Rules[i], true, errs.At("rules[%d]", i))
		}
	},
	Columns: createdAt[*rbacv1.Role](), Ageless: true,
	Versions: []resource.Version[*rbacv1.Role]{resource.SameWire[*rbacv1beta1.Role](resource.Version[*rbacv1.Role]{
		Group: "rbac.authorization.k8s.io", Version: "v1beta1",
		Deprecated: "rbac.authorization.k8s.io/v1beta1 Role is deprecated in v1.17+, unavailable in v1.22+; use rbac.authorization.k8s.io/v1 Role",
	})},
})
