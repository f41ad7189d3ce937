package storage

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of storage.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		CSIDrivers.Def,
		CSINodes.Def,
		CSIStorageCapacities.Def,
		StorageClasses.Def,
		VolumeAttachments.Def,
		VolumeAttributesClasses.Def,
	}
}
