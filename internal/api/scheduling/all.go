package scheduling

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of scheduling.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		PodGroups.Def,
		PriorityClasses.Def,
		Workloads.Def,
	}
}
