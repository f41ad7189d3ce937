package plane

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers/coordinatedelection"
	"github.com/kemudi/kemudi/internal/features"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/task"
)

// elections are how leaders are elected: of the controllers, and of the scheduler, whose
// configuration may say something else.
func (o *Options) elections() (controllers, scheduler leader.Settings) {
	controllers = o.Election.WithDefaults()
	scheduler = controllers
	scheduler.Names = []string{controllers.Lease(1)}
	if o.Scheduler != nil {
		scheduler = o.Scheduler.LeaderElection
	}
	return controllers, scheduler
}

// elects says that leaders are elected as soon as there are others: nobody decides for them.
func (o *Options) elects() bool {
	controllers, scheduler := o.elections()
	return !o.Alone && o.Leadership == nil && !(controllers.Off && scheduler.Off)
}

// coordinates says that leases are given away to those who stand for them.
func (o *Options) coordinates() bool { return o.Features.On(features.CoordinatedLeaderElection) }

// checkElections says what is wrong with the elections.
func (o *Options) checkElections() error {
	if err := o.Coordinated.Check(); err != nil {
		return fmt.Errorf("coordinated leader election, whose flags begin with --coordinated-leadership: %w", err)
	}
	controllers, scheduler := o.elections()
	if err := controllers.Check(); err != nil {
		return err
	}
	if err := scheduler.Check(); err != nil {
		return fmt.Errorf("leader election of the scheduler: %w", err)
	}
	if !controllers.Off && !scheduler.Off && oneLease(controllers, scheduler) && !controllers.SameTimes(scheduler) {
		return fmt.Errorf("controllers and scheduler go by one lease, %s/%s: their leader elections must not differ", controllers.Namespace, controllers.Lease(0))
	}
	return nil
}

// oneLease says that both go by the same lease.
func oneLease(controllers, scheduler leader.Settings) bool {
	return controllers.Namespace == scheduler.Namespace && controllers.Lease(0) == scheduler.Lease(0)
}

// leadership is who decides whether this process runs the controllers, and the
// scheduler; nil: it does.
type leadership struct {
	controllers, scheduler, coordination controller.Leadership
	electors                             []*leader.Elector // to be run when there are others
}

// leadership takes part in the elections, if there are any. What is elected is known by
// upstream's names of the programs.
func (p *Plane) leadership() leadership {
	l := leadership{controllers: p.o.Leadership, scheduler: p.o.Leadership, coordination: p.o.Leadership}
	coordinates := p.o.coordinates() && p.o.Leadership == nil
	if !p.o.elects() && !coordinates {
		return l
	}
	controllers, scheduler := p.o.elections()
	metrics, identity := leader.NewMetrics(p.o.Registry), p.o.Host+"_"+p.uid
	elector := func(settings leader.Settings, component string) *leader.Elector {
		e := leader.New(leader.Options{
			Settings: settings, Name: settings.Lease(0), Identity: identity, Alone: !p.o.Shared, Record: p.record, Transport: p.Admin(),
			Events: p.recorder.For(component), Metrics: metrics, Logger: p.o.Logger,
		})
		l.electors = append(l.electors, e)
		return e
	}
	if coordinates {
		settings := p.o.Coordinated.WithDefaults()
		settings.Names = []string{coordinatedelection.Name}
		l.coordination = elector(settings, coordinatedelection.Name)
	}
	if !p.o.elects() {
		return l
	}
	if !controllers.Off {
		l.controllers = elector(controllers, "kube-controller-manager")
	}
	switch {
	case scheduler.Off:
	case !controllers.Off && oneLease(controllers, scheduler):
		l.scheduler = l.controllers
	default:
		l.scheduler = elector(scheduler, "default-scheduler")
	}
	return l
}

// coordinate gives leases away to those who stand for them, if this server is to: it acts as an API server does, whatever else
// runs in the process.
func (p *Plane) coordinate(g *task.Group, m *controller.Metrics) {
	if !p.o.coordinates() {
		return
	}
	if !p.server.Serves(coordination.LeaseCandidates.Def) {
		p.o.Logger.Warn("nobody can stand for a coordinated leader election: --runtime-config does not turn coordination.k8s.io/v1beta1 on")
		return
	}
	env := controller.Env{
		As: func(string) client.Transport {
			return p.server.As(&user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}, "kube-apiserver")
		},
		Logger: p.o.Logger, Metrics: m, Leadership: p.lead.coordination,
	}
	g.Go("coordinated leader elections", func(ctx context.Context) error { return coordinatedelection.Controller.Run(ctx, env) })
}
