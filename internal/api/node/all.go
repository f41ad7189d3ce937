package node

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of node.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		RuntimeClasses.Def,
	}
}
