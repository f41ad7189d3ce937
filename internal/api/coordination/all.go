package coordination

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of coordination.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		LeaseCandidates.Def,
		Leases.Def,
	}
}
