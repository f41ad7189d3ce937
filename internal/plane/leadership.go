package plane

import (
	"github.com/google/uuid"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/leader"
)

// elects says that leaders are elected: there are others, and nobody decides for them.
func (o *Options) elects() bool { return o.Shared && !o.Election.Off && o.Leadership == nil }

// leadership is who decides whether this process runs the controllers, and the
// scheduler; nil: it does.
type leadership struct {
	controllers, scheduler controller.Leadership
	electors               []*leader.Elector // to be run
}

// leadership takes part in the elections, if there are any. What is elected is known by
// upstream's names of the programs.
func (p *Plane) leadership(events *client.Recorder) leadership {
	if !p.o.elects() {
		return leadership{controllers: p.o.Leadership, scheduler: p.o.Leadership}
	}
	settings, metrics := p.o.Election.WithDefaults(), leader.NewMetrics(p.o.Registry)
	identity := p.o.Host + "_" + uuid.NewString()
	elector := func(lease int, component string) *leader.Elector {
		return leader.New(leader.Options{
			Settings: settings, Name: settings.Lease(lease), Identity: identity, Transport: p.Admin(),
			Events: events.For(component), Metrics: metrics, Logger: p.o.Logger,
		})
	}
	first := elector(0, "kube-controller-manager")
	if settings.Lease(0) == settings.Lease(1) {
		return leadership{first, first, []*leader.Elector{first}}
	}
	second := elector(1, "default-scheduler")
	return leadership{first, second, []*leader.Elector{first, second}}
}
