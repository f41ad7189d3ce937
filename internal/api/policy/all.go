package policy

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of policy, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		PodDisruptionBudgets.Def,
	}
}
