package apiextensions

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of apiextensions.k8s.io.
func All() []*resource.Def {
	return []*resource.Def{CustomResourceDefinitions.Def}
}
