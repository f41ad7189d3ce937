package plane

import (
	"fmt"

	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/leader"
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

// checkElections says what is wrong with the elections.
func (o *Options) checkElections() error {
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
	controllers, scheduler controller.Leadership
	electors               []*leader.Elector // to be run when there are others
}

// leadership takes part in the elections, if there are any. What is elected is known by
// upstream's names of the programs.
func (p *Plane) leadership() leadership {
	if !p.o.elects() {
		return leadership{controllers: p.o.Leadership, scheduler: p.o.Leadership}
	}
	controllers, scheduler := p.o.elections()
	metrics, identity := leader.NewMetrics(p.o.Registry), p.o.Host+"_"+p.uid
	var l leadership
	elector := func(settings leader.Settings, component string) *leader.Elector {
		e := leader.New(leader.Options{
			Settings: settings, Name: settings.Lease(0), Identity: identity, Alone: !p.o.Shared, Record: p.record, Transport: p.Admin(),
			Events: p.recorder.For(component), Metrics: metrics, Logger: p.o.Logger,
		})
		l.electors = append(l.electors, e)
		return e
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
