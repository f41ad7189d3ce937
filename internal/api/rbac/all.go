package rbac

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of rbac.authorization.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		ClusterRoleBindings.Def,
		ClusterRoles.Def,
		RoleBindings.Def,
		Roles.Def,
	}
}
