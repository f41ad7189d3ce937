package core

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of the core group, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		Bindings.Def,
		ComponentStatuses.Def,
		ConfigMaps.Def,
		Endpoints.Def,
		Events.Def,
		LimitRanges.Def,
		Namespaces.Def,
		Nodes.Def,
		PersistentVolumeClaims.Def,
		PersistentVolumes.Def,
		PodTemplates.Def,
		Pods.Def,
		ReplicationControllers.Def,
		ResourceQuotas.Def,
		Secrets.Def,
		ServiceAccounts.Def,
		Services.Def,
	}
}
