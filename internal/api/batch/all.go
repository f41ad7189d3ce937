package batch

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of batch, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		CronJobs.Def,
		Jobs.Def,
	}
}
