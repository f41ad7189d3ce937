package apps

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of apps, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		ControllerRevisions.Def,
		DaemonSets.Def,
		Deployments.Def,
		ReplicaSets.Def,
		StatefulSets.Def,
	}
}
