package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/store"
)

// nobody leads: a control plane with it only serves the API.
type nobody struct{}

var _ controller.Leadership = nobody{}

// Lead waits for ctx to end.
func (nobody) Lead(ctx context.Context, _ func(ctx context.Context) error) error {
	<-ctx.Done()
	return nil
}

// contender is one of several control planes over the store. It is a process of its own, as far
// as that is possible within one: all that it asks of the store goes through a line that can be
// cut and blocked.
type contender struct {
	*plane.Plane
	line    *line
	metrics *prometheus.Registry
	stop    context.CancelCauseFunc
	done    chan struct{} // closed when all of it has ended
}

// errKilled is what a dead process would be told.
var errKilled = errors.New("the process was killed")

// line is the way of one process to the store.
type line struct {
	store.Store
	mu struct {
		sync.Mutex
		cut    bool
		thawed chan struct{} // closed when the process goes on; nil: it runs
		writes int           // how many more writes until it is frozen; negative: it is not to be
		late   int           // writes, but of leases, that were on their way when it was frozen
	}
}

func newLine(s store.Store) *line {
	l := &line{Store: s}
	l.mu.writes = -1
	return l
}

// pass waits as long as the process is frozen, whatever has become of the call meanwhile:
// it goes on where it was.
func (l *line) pass() (late bool, _ error) {
	for {
		l.mu.Lock()
		cut, thawed := l.mu.cut, l.mu.thawed
		l.mu.Unlock()
		switch {
		case cut:
			return late, errKilled
		case thawed == nil:
			return late, nil
		}
		<-thawed
		late = true
	}
}

// freeze freezes the process at a write, after so many others.
func (l *line) freeze(writes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.writes = writes
}

// count counts a write that the process is about to make.
func (l *line) count() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.writes == 0 && l.mu.thawed == nil {
		l.mu.thawed = make(chan struct{})
	}
	l.mu.writes = max(l.mu.writes-1, -1)
}

// thaw lets a frozen process go on, and cut says that it does so dead.
func (l *line) thaw(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cut, l.mu.writes = cut, -1
	if l.mu.thawed != nil {
		close(l.mu.thawed)
		l.mu.thawed = nil
	}
}

// Get reads one key.
func (l *line) Get(ctx context.Context, key string) (store.KV, int64, error) {
	if _, err := l.pass(); err != nil {
		return store.KV{}, 0, err
	}
	return l.Store.Get(ctx, key)
}

// Rev asks how far the store is.
func (l *line) Rev(ctx context.Context) (int64, error) {
	if _, err := l.pass(); err != nil {
		return 0, err
	}
	return l.Store.Rev(ctx)
}

// List reads keys.
func (l *line) List(ctx context.Context, prefix string, o store.ListOptions) (store.Page, error) {
	if _, err := l.pass(); err != nil {
		return store.Page{}, err
	}
	return l.Store.List(ctx, prefix, o)
}

// Txn writes. What was on its way when the process was frozen arrives when it goes
// on, though nobody waits for it any more.
func (l *line) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	l.count()
	late, err := l.pass()
	if err != nil {
		return store.TxnResult{}, err
	}
	if late {
		if len(t.Ops) > 0 && !strings.HasPrefix(t.Ops[0].Key, "/registry/leases/") {
			l.mu.Lock()
			l.mu.late++
			l.mu.Unlock()
		}
		ctx = context.WithoutCancel(ctx)
	}
	return l.Store.Txn(ctx, t)
}

// BeginLife begins a life.
func (l *line) BeginLife(ctx context.Context, ttl time.Duration) (store.Life, error) {
	if _, err := l.pass(); err != nil {
		return 0, err
	}
	return l.Store.BeginLife(ctx, ttl)
}

// RenewLife lets a life begin anew.
func (l *line) RenewLife(ctx context.Context, life store.Life) error {
	if _, err := l.pass(); err != nil {
		return err
	}
	return l.Store.RenewLife(ctx, life)
}

// EndLife ends a life at once.
func (l *line) EndLife(ctx context.Context, life store.Life) error {
	if _, err := l.pass(); err != nil {
		return err
	}
	return l.Store.EndLife(ctx, life)
}

// Watch follows the store.
func (l *line) Watch(ctx context.Context, prefix string, after int64, fn func([]store.Change, int64) error) error {
	return l.Store.Watch(ctx, prefix, after, func(changes []store.Change, progress int64) error {
		if _, err := l.pass(); err != nil {
			return err
		}
		return fn(changes, progress)
	})
}

// Contend has the control plane that the nodes and the test talk to serve the API and nothing
// else, and starts others over its store that stand for election.
func (c *Cluster) Contend(names ...string) error {
	c.options.Shared, c.options.Leadership = true, nobody{}
	if err := c.Restart(); err != nil {
		return err
	}
	c.planes = map[string]*contender{}
	for _, name := range names {
		if err := c.StartPlane(name); err != nil {
			return err
		}
	}
	return nil
}

// StartPlane starts a control plane that stands for election, and returns when its API can
// be used.
func (c *Cluster) StartPlane(name string) error {
	if c.planes == nil || c.planes[name] != nil {
		return fmt.Errorf("a control plane %s cannot be started", name)
	}
	o := c.options
	p := &contender{line: newLine(o.Store), metrics: prometheus.NewRegistry(), done: make(chan struct{})}
	o.Store, o.Leadership, o.Host, o.Registry = p.line, nil, name, p.metrics
	var err error
	if p.Plane, err = plane.New(o); err != nil {
		return err
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancelCause(c.group.Context())
	c.planes[name] = p
	c.group.Go("control plane "+name, func(context.Context) error {
		defer close(p.done)
		if err := p.Run(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	select {
	case <-p.Ready():
		return nil
	case <-c.group.Context().Done():
		return c.group.Wait()
	}
}

func (c *Cluster) contender(name string) (*contender, error) {
	if p := c.planes[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no control plane %s stands for election", name)
}

// PlaneAPI is the API of a contending control plane with every right; nil: there is no such.
// It answers as long as that is neither stopped, killed nor frozen.
func (c *Cluster) PlaneAPI(name string) client.Transport {
	if p := c.planes[name]; p != nil {
		return p.Admin()
	}
	return nil
}

// StopPlane ends a contending control plane in order, KillPlane as it is, in the middle of
// what it does.
func (c *Cluster) StopPlane(name string) error { return c.endPlane(name, false) }

// KillPlane is explained at StopPlane.
func (c *Cluster) KillPlane(name string) error { return c.endPlane(name, true) }

func (c *Cluster) endPlane(name string, kill bool) error {
	p, err := c.contender(name)
	if err != nil {
		return err
	}
	delete(c.planes, name)
	p.line.thaw(kill)
	p.stop(errStopped)
	<-p.done
	return nil
}

// FreezePlane stops a contending control plane, without its knowledge, as it is about to
// write, after so many other writes; ThawPlane lets it go on. Its clock goes on meanwhile.
func (c *Cluster) FreezePlane(name string, writes int) error {
	p, err := c.contender(name)
	if err == nil {
		p.line.freeze(writes)
	}
	return err
}

// ThawPlane is explained at FreezePlane. late is how many writes were on their way.
func (c *Cluster) ThawPlane(name string) (late func() int, _ error) {
	p, err := c.contender(name)
	if err != nil {
		return nil, err
	}
	p.line.thaw(false)
	return func() int {
		p.line.mu.Lock()
		defer p.line.mu.Unlock()
		return p.line.mu.late
	}, nil
}

// Transitions is how often a lease of kube-system has changed hands.
func (c *Cluster) Transitions(lease string) int {
	l, ok := client.Cached(c.API(), coordination.Leases, "").Get("kube-system", lease)
	if !ok || l.Spec.LeaseTransitions == nil {
		return 0
	}
	return int(*l.Spec.LeaseTransitions)
}

// Leader is the contending control plane that holds a lease of kube-system, by what the
// store says; empty: none.
func (c *Cluster) Leader(lease string) string {
	l, ok := client.Cached(c.API(), coordination.Leases, "").Get("kube-system", lease)
	if !ok || l.Spec.HolderIdentity == nil {
		return ""
	}
	for name := range c.planes {
		if strings.HasPrefix(*l.Spec.HolderIdentity, name+"_") {
			return name
		}
	}
	return ""
}

func contend(_ context.Context, r *run, args []string) error {
	if len(args) == 0 {
		return errArgs
	}
	r.untrack()
	return r.c.Contend(args...)
}

// planeArg is the control plane that a command names.
func (r *run) planeArg(args []string) (string, error) {
	switch {
	case len(args) != 1:
		return "", errArgs
	case args[0] != "leader":
		return args[0], nil
	}
	if name := r.c.Leader("kube-controller-manager"); name != "" {
		return name, nil
	}
	return "", errors.New("no control plane leads")
}

func startPlane(_ context.Context, r *run, args []string) error {
	name, err := r.planeArg(args)
	if err != nil {
		return err
	}
	return r.c.StartPlane(name)
}

func stopPlane(_ context.Context, r *run, args []string) error {
	name, err := r.planeArg(args)
	if err != nil {
		return err
	}
	return r.c.StopPlane(name)
}

func killPlane(_ context.Context, r *run, args []string) error {
	name, err := r.planeArg(args)
	if err != nil {
		return err
	}
	return r.c.KillPlane(name)
}

func freezePlane(_ context.Context, r *run, args []string) error {
	if len(args) != 2 {
		return errArgs
	}
	name, err := r.planeArg(args[:1])
	if err != nil {
		return err
	}
	writes, err := strconv.Atoi(args[1])
	if err != nil {
		return errArgs
	}
	return r.c.FreezePlane(name, writes)
}

func thawPlane(_ context.Context, r *run, args []string) error {
	name, err := r.planeArg(args)
	if err != nil {
		return err
	}
	_, err = r.c.ThawPlane(name)
	return err
}

func leader(_ context.Context, r *run, args []string) error {
	if len(args) != 1 {
		return errArgs
	}
	r.stdout = r.c.Leader(args[0]) + "\n"
	return nil
}
