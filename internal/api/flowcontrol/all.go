package flowcontrol

import "github.com/kemudi/kemudi/internal/resource"

// Group is the API group of the kinds.
const Group = "flowcontrol.apiserver.k8s.io"

// All lists the resources of flowcontrol.apiserver.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		FlowSchemas.Def,
		PriorityLevels.Def,
	}
}
