package settings

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of settings.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		PodPresets.Def,
	}
}
