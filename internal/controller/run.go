package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

const defaultWorkers = 4

// spareWorkers is how many goroutines wait for keys, of all controllers together.
const spareWorkers = 4

// A controller that has failed as a whole begins anew, after a wait.
const firstRestart, lastRestart = time.Second, time.Minute

// reconcileDeadline bounds one reconcile, so that a hanging call cannot hold a
// key for ever.
const reconcileDeadline = 2 * time.Minute

// New makes the controller that a Spec declares.
func New[T resource.Object](s Spec[T]) *Controller {
	c := &Controller{Name: s.Name, Source: cmp.Or(s.Source, s.Name), Writes: s.Writes, Rules: s.Rules, Workers: s.Workers, every: s.Every}
	c.addReads(s.For.Def)
	for _, w := range s.Watches {
		c.addReads(w.Def)
	}
	c.addReads(s.Reads...)
	c.run = func(ctx context.Context, k *Kit) error { return runSpec(ctx, k, &s) }
	return c
}

// NewKeyed makes the controller that a Keyed declares.
func NewKeyed(s Keyed) *Controller {
	c := &Controller{Name: s.Name, Source: cmp.Or(s.Source, s.Name), Writes: s.Writes, Rules: s.Rules, Workers: s.Workers, every: s.Every}
	for _, w := range s.Watches {
		c.addReads(w.Def)
	}
	c.addReads(s.Reads...)
	c.run = func(ctx context.Context, k *Kit) error {
		r := &runner{k: k, q: newQueue(k.m), reconcile: s.Setup(k)}
		return r.run(ctx, s.Watches)
	}
	return c
}

// NewCustom makes the controller that a Custom declares.
func NewCustom(s Custom) *Controller {
	c := &Controller{Name: s.Name, Source: s.Name, Writes: s.Writes, Rules: s.Rules, run: s.Run}
	c.addReads(s.Reads...)
	return c
}

func (c *Controller) addReads(defs ...*resource.Def) {
	for _, d := range defs {
		if !slices.Contains(c.Reads, d) {
			c.Reads = append(c.Reads, d)
		}
	}
}

// reads says that a resource is an input.
func (c *Controller) reads(def *resource.Def) bool {
	return slices.Contains(c.Reads, def) || c.every.has(def)
}

// Run runs the controller as RunAll does.
func (c *Controller) Run(ctx context.Context, env Env) error {
	return RunAll(ctx, []*Controller{c}, env)
}

// RunAll runs controllers side by side, whenever this process leads, until ctx
// ends (C7, C9). One that fails or panics stops no other, and begins anew after a while.
func RunAll(ctx context.Context, controllers []*Controller, env Env) error {
	g := task.NewGroup(ctx)
	h := newHub(g, env.Logger)
	workers := task.NewPool(g, "worker", spareWorkers)
	for _, c := range controllers {
		g.Go(c.Name, func(ctx context.Context) error { return c.last(ctx, env, shared{h, workers}) })
	}
	return g.Wait()
}

// shared is what controllers that run side by side have in common.
type shared struct {
	hub     *hub
	workers *task.Pool
}

// last runs the controller again and again, until ctx ends or it has nothing left to do.
func (c *Controller) last(ctx context.Context, env Env, s shared) error {
	again := task.Backoff{Initial: firstRestart, Max: lastRestart}
	for {
		err := task.Contain(func() error { return c.lead(ctx, env, s) })
		if err == nil || ctx.Err() != nil {
			return err
		}
		wait := again.Next()
		env.Logger.Error("a controller has failed and begins anew", "controller", c.Name, "err", err, "after", wait)
		if err := task.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// lead runs the controller whenever this process leads.
func (c *Controller) lead(ctx context.Context, env Env, s shared) error {
	k := &Kit{
		Logger: env.Logger.With("controller", c.Name), Events: client.NoEvents,
		c: c, t: env.As(c.Name), m: env.Metrics.of(c.Name), metrics: env.Metrics, shared: s,
	}
	if env.Recorder != nil {
		k.Events = env.Recorder(c.Source)
	}
	run := func(ctx context.Context) error {
		reads := c.Reads
		if c.every != nil {
			reads, _ = c.every.Kinds.Defs()
			reads = slices.DeleteFunc(append(slices.Clone(reads), c.Reads...), func(def *resource.Def) bool { return !c.reads(def) })
		}
		if !synced(ctx, k.t, reads, nil) {
			return context.Cause(ctx)
		}
		defer env.Metrics.runs(c.Name, env.Manager)()
		return c.run(ctx, k)
	}
	if env.Leadership == nil {
		return run(ctx)
	}
	return env.Leadership.Lead(ctx, run)
}

// runSpec runs a controller of objects: a runner whose keys are theirs.
func runSpec[T resource.Object](ctx context.Context, k *Kit, s *Spec[T]) error {
	objs, rec := k.t.Cache(s.For.Def, ""), s.Setup(k)
	gone, _ := rec.(Goner)
	r := &runner{k: k, q: newQueue(k.m), reconcile: func(ctx context.Context, key string) (Next, error) {
		if it := objs.Get(key); it != nil {
			return rec.Reconcile(ctx, it.Object.(T))
		}
		if gone != nil {
			return Done, gone.Gone(ctx, key)
		}
		return Done, nil
	}}
	own := Watch{Def: s.For.Def, Keys: func(_ *Kit, obj resource.Object) []string {
		return []string{cache.Key(obj.GetNamespace(), obj.GetName())}
	}}
	return r.run(ctx, append([]Watch{own}, s.Watches...))
}

// runner is one run of a controller with keys.
type runner struct {
	k         *Kit
	q         *queue
	reconcile func(ctx context.Context, key string) (Next, error)
}

func (r *runner) run(ctx context.Context, watches []Watch) error {
	defer r.q.end()
	for _, w := range watches {
		if w.Selection != nil { // before the owners wake their keys
			defer r.k.hub.keep(w.Selection, r.k.t.Cache(w.Selection.owners, ""))()
		}
	}
	// What a worker has seen before a watch began could go without anybody being told.
	var told []<-chan struct{}
	for _, w := range watches {
		began, leave := r.watch(w)
		defer leave()
		told = append(told, began)
	}
	for _, began := range told {
		select {
		case <-began:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	g := r.k.workers.Group(ctx)
	r.q.open(cmp.Or(r.k.c.Workers, defaultWorkers), func() { g.Go("worker", r.work) })
	err := task.Contain(func() error { return r.watchEvery(g.Context(), r.k.c.every) })
	if err != nil {
		err = fmt.Errorf("watch every kind: %w", err)
	}
	g.Cancel(err)
	r.q.end() // or a worker could begin after the last has been waited for
	return errors.Join(err, g.Wait())
}

// watch wakes the keys of every change of an input (C4) until leave is called. told is closed when it has begun: of what is
// there then the keys are awake.
func (r *runner) watch(w Watch) (told <-chan struct{}, leave func()) {
	c := r.k.t.Cache(w.Def, "")
	if c == nil { // a kind that is about to leave its set
		nothing := make(chan struct{})
		close(nothing)
		return nothing, func() {}
	}
	return r.k.hub.join(c, func(d cache.Delta, first bool) {
		err := task.Contain(func() error {
			r.wake(d, w, first)
			return nil
		})
		if err != nil { // of this controller: the others are told of the change all the same
			r.k.Logger.Error("wake the keys of a change", "resource", w.Def.String(), "key", d.Last().Key, "err", err)
		}
	})
}

func (r *runner) wake(d cache.Delta, w Watch, first bool) {
	if w.SkipNew && d.Prev == nil {
		return
	}
	if w.Same != nil && d.Prev != nil && d.Now != nil && w.Same(d.Prev.Object, d.Now.Object) {
		return
	}
	where := inFresh
	if first || w.Behind {
		where = inFirst
	}
	last := w.Keys(r.k, d.Last().Object)
	for _, key := range last {
		r.add(where, key)
	}
	if d.Prev == nil || d.Now == nil {
		return
	}
	for _, key := range w.Keys(r.k, d.Prev.Object) {
		if !slices.Contains(last, key) {
			r.add(where, key)
		}
	}
}

func (r *runner) add(where line, key string) {
	r.k.m.add()
	r.q.add(where, key)
}

// work reconciles keys until there are none.
func (r *runner) work(ctx context.Context) error {
	for {
		key, ok := r.q.take()
		if !ok {
			return nil
		}
		started := time.Now()
		r.k.m.begin(started)
		w := &written{}
		next, err := r.guarded(context.WithValue(ctx, writtenKey{}, w), key)
		if ctx.Err() != nil {
			r.k.m.done(started, false)
			return nil
		}
		if err != nil && !quiet(err) {
			level := slog.LevelError // C8
			if refused(err) {
				level = slog.LevelInfo
			}
			r.k.Logger.Log(ctx, level, "reconcile", "key", key, "err", err)
		}
		r.k.m.done(started, err != nil)
		r.q.done(key, result{after: next.after, behind: next.behind, cooldown: next.cooldown, failed: err != nil, wrote: w.take()})
	}
}

func (w *written) take() map[*cache.Progress]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.revs
}

// quiet errors are part of normal life: the caches were old. The key is tried
// again, as after any error.
func quiet(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// refused says that the API server does not let what an object asks for come to
// be: a quota, a policy or a template is in the way. Its owner is who can act, and
// is told by the controller's event.
func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// guarded bounds a reconcile in time and turns its panics into errors.
func (r *runner) guarded(ctx context.Context, key string) (next Next, err error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileDeadline)
	defer cancel()
	err = task.Contain(func() error {
		next, err = r.reconcile(ctx, key)
		return err
	})
	return next, err
}
