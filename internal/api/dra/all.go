package dra

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of resource.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		DeviceClasses.Def,
		DeviceTaintRules.Def,
		ResourceClaims.Def,
		ResourceClaimTemplates.Def,
		ResourceSlices.Def,
	}
}
