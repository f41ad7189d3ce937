package scheduler

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/scheduler/config"
	"github.com/kemudi/kemudi/internal/scheduler/devices"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
	"github.com/kemudi/kemudi/internal/task"
)

// sweepEvery is how often the snapshot forgets what nobody asks for; restAfter is after which time
// without an attempt nothing is remembered for the next.
const (
	sweepEvery = 5 * time.Minute
	restAfter  = time.Minute
)

// Options say how to schedule. Transport is required.
type Options struct {
	// Transport is the API as system:kube-scheduler sees it.
	Transport client.Transport
	// Events returns who takes notes about pods, given the reporter; nil: nobody does.
	Events func(reporter string) client.EventSink
	// Logger; nil: nothing is logged.
	Logger *slog.Logger
	// Registry gets the metrics; nil: they are not shown.
	Registry prometheus.Registerer
	// PodGroups says that groups of pods are served, and to be placed as one.
	PodGroups bool
	// Config is how to schedule; nil: that of upstream.
	Config *config.Config
}

func (o Options) withDefaults() Options {
	if o.Events == nil {
		o.Events = func(string) client.EventSink { return client.NoEvents }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Config == nil {
		o.Config = config.Default()
	}
	return o
}

// Scheduler schedules pods while Run runs.
type Scheduler struct {
	o       Options
	metrics *metrics
	more    []plugins.Plugin // of every profile, beside those that it chooses: the tests'
}

// New returns a scheduler.
func New(o Options) *Scheduler {
	o = o.withDefaults()
	m := newMetrics(o.Registry)
	if o.PodGroups {
		m.groups = newGroupMetrics(o.Registry)
	}
	return &Scheduler{o: o, metrics: m}
}

// loop is one run of a scheduler. All of it belongs to the goroutine of Run.
type loop struct {
	*Scheduler
	log *slog.Logger

	pods     client.Client[*corev1.Pod]
	snapshot *snapshot.Snapshot
	profiles profiles
	queue    *queue
	calls    *calls
	held     held
	groups   *groups // nil: there are none

	consulting *consultation // extenders are asked; nil: they are not
	budgets    *budgets
	followers  *followers
	swept      time.Time
	tried      time.Time // when a pod was tried last; zero: nothing is remembered
}

// Run schedules until ctx ends. It may be called again after that, but not twice
// at a time.
func (s *Scheduler) Run(ctx context.Context) error {
	t := s.o.Transport
	own := newOwners(t)
	caches := []*cache.Cache{own.replicaSets.Cache, own.statefulSets.Cache, own.replicationControllers.Cache}
	for _, f := range new(loop).follows().all() {
		caches = append(caches, t.Cache(f.def, ""))
	}
	if s.o.PodGroups {
		caches = append(caches, t.Cache(scheduling.PodGroups.Def, ""))
	}
	for _, c := range caches {
		select {
		case <-c.Synced():
		case <-ctx.Done():
			return nil
		}
	}
	g := task.NewGroup(ctx)
	snap := snapshot.New(own.selector)
	snap.Compile(devices.Expressions(g.Context()))
	l := &loop{
		Scheduler: s, log: s.o.Logger,
		pods: client.For(t, core.Pods), snapshot: snap, queue: newQueue(s.o.Config.PodInitialBackoff, s.o.Config.PodMaxBackoff), calls: newCalls(g), held: newHeld(),
		budgets: newBudgets(), swept: time.Now(),
	}
	l.calls.done, l.queue.came = s.metrics.done, s.metrics.came
	l.profiles = newProfiles(s.o.Config.Profiles, snap, l.budgets, s.o.Events)
	if s.o.PodGroups {
		l.groups, l.queue.groups = newGroups(t), true
	}
	for _, by := range l.profiles {
		by.groups, by.watch = l.groups, newStopwatch(s.metrics.timings, by.name, by.plugins)
		for _, p := range s.more {
			by.plugins.Add(p, 0)
		}
	}
	g.Go("schedule", func(ctx context.Context) error { return l.run(ctx, t) })
	return g.Wait()
}

// run takes turns: changes, answers, one pod; and waits when there is neither.
func (l *loop) run(ctx context.Context, t client.Transport) error {
	l.follow(t)
	defer l.followers.close()
	for ctx.Err() == nil {
		l.takeIn()
		l.takeAnswers()
		l.proceed(time.Now())
		l.settleGroups()
		l.rest(time.Now())
		if !l.calls.full() {
			if item := l.nextToAsk(); item != nil {
				l.attempt(item)
				continue
			}
			if item := l.queue.pop(time.Now()); item != nil {
				l.attempt(item)
				continue
			}
		}
		l.metrics.sizes(l)
		l.wait(ctx)
	}
	return nil
}

// takeAnswers takes in the answers that are there.
func (l *loop) takeAnswers() {
	for {
		select {
		case x := <-l.calls.answers:
			l.calls.answer(x)
		default:
			return
		}
	}
}

// wait returns when there may be something to do.
func (l *loop) wait(ctx context.Context) {
	var due <-chan time.Time
	if next := l.next(); !next.IsZero() {
		timer := time.NewTimer(time.Until(next))
		defer timer.Stop()
		due = timer.C
	}
	f := l.followers
	select {
	case x := <-l.calls.answers:
		l.calls.answer(x)
	case <-f.pods.Ready():
	case <-f.nodes.Ready():
	case <-f.namespaces.Ready():
	case <-f.services.Ready():
	case <-f.budgets.Ready():
	case <-f.classes.Ready():
	case <-f.drivers.Ready():
	case <-f.capacities.Ready():
	case <-f.csiNodes.Ready():
	case <-f.attachments.Ready():
	case <-f.volumes.Ready():
	case <-f.claims.Ready():
	case <-f.deviceClasses.Ready():
	case <-f.deviceRules.Ready():
	case <-f.deviceSlices.Ready():
	case <-f.deviceClaims.Ready():
	case <-f.groupsReady():
	case <-due:
	case <-ctx.Done():
	}
}

// next is when there will be something to do by the clock; zero: never.
func (l *loop) next() time.Time {
	next := l.queue.next()
	sooner := func(t time.Time) {
		if next.IsZero() || !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	sooner(l.held.next())
	if !l.tried.IsZero() {
		sooner(l.tried.Add(restAfter))
	}
	return next
}

// rest forgets what is remembered when no pod has been tried for a while: it holds on to
// pods that have gone.
func (l *loop) rest(now time.Time) {
	if !l.tried.IsZero() && now.Sub(l.tried) >= restAfter {
		l.forget()
		l.tried = time.Time{}
	}
}

// forget forgets what was found out about pods and nodes.
func (l *loop) forget() {
	for _, by := range l.profiles {
		by.forget()
	}
}

// wake has pods tried again that an event can help.
func (l *loop) wake(e plugins.Event) {
	l.held.events |= e.Kind
	now := time.Now()
	defer l.metrics.event(e.Kind, now)
	for refused, by := range l.queue.byRefused {
		set := refused.by.plugins
		if !set.Cares(refused.plugins, e.Kind) {
			continue
		}
		for item := range by.apart {
			if item.group != nil && item.group.helped(set, refused.plugins, l.snapshot, &e) ||
				item.group == nil && set.Wakes(refused.plugins, &plugins.Cycle{Snapshot: l.snapshot, Pod: item.pod}, &e) {
				l.wakeItem(item, e.Kind, now)
			}
		}
		for _, items := range by.alike {
			if set.Wakes(refused.plugins, &plugins.Cycle{Snapshot: l.snapshot, Pod: oneOf(items).pod}, &e) {
				for item := range items {
					l.wakeItem(item, e.Kind, now)
				}
			}
		}
	}
}

func (l *loop) wakeItem(item *pending, why plugins.Events, now time.Time) {
	l.queue.wake(item, now)
	l.metrics.came(why.String(), item, item.place)
}
