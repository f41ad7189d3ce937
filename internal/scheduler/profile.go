package scheduler

import (
	"math/rand/v2"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/scheduler/config"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// profile is how the pods are scheduled that name it as their scheduler. All
// profiles share the snapshot and the queue.
type profile struct {
	*cycle
	name   string
	events client.EventSink // notes about pods, with the profile as their reporter
}

// profiles are by name.
type profiles map[string]*profile

func newProfiles(list []config.Profile, snap *snapshot.Snapshot, b *budgets, events func(reporter string) client.EventSink) profiles {
	all := profiles{}
	for _, p := range list {
		all[p.Name] = &profile{name: p.Name, events: events(p.Name), cycle: &cycle{
			snapshot: snap, budgets: b, plugins: plugins.NewSet(p.Plugins),
			percentage: p.PercentageOfNodesToScore, rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		}}
	}
	return all
}
