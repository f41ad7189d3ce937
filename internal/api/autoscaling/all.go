package autoscaling

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of autoscaling, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		HorizontalPodAutoscalers.Def,
	}
}
