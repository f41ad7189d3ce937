package discovery

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of discovery.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		EndpointSlices.Def,
	}
}
