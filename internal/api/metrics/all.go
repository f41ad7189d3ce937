package metrics

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of metrics.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		Nodes.Def,
		Pods.Def,
	}
}
