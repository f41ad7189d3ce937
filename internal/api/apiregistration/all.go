package apiregistration

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of apiregistration.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		APIServices.Def,
	}
}
