package storagemigration

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of storagemigration.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		StorageVersionMigrations.Def,
	}
}
