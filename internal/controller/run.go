package controller

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

const defaultWorkers = 4

// reconcileDeadline bounds one reconcile, so that a hanging call cannot hold a
// key for ever.
const reconcileDeadline = 2 * time.Minute

// New makes the controller that a Spec declares.
func New[T resource.Object](s Spec[T]) *Controller {
	c := &Controller{Name: s.Name, Writes: s.Writes, Rules: s.Rules}
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
	c := &Controller{Name: s.Name, Writes: s.Writes, Rules: s.Rules}
	for _, w := range s.Watches {
		c.addReads(w.Def)
	}
	c.addReads(s.Reads...)
	c.run = func(ctx context.Context, k *Kit) error {
		r := &runner{k: k, q: newQueue(k.m), reconcile: s.Setup(k)}
		return r.run(ctx, s.Watches, s.Workers)
	}
	return c
}

// NewCustom makes the controller that a Custom declares.
func NewCustom(s Custom) *Controller {
	c := &Controller{Name: s.Name, Writes: s.Writes, Rules: s.Rules, run: s.Run}
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

// Run runs the controller whenever this process leads, until ctx ends (C7, C9).
func (c *Controller) Run(ctx context.Context, env Env) error {
	k := &Kit{
		Logger: env.Logger.With("controller", c.Name), Events: client.NoEvents,
		c: c, t: env.As(c.Name), m: env.Metrics.of(c.Name),
	}
	if env.Recorder != nil {
		k.Events = env.Recorder(c.Name)
	}
	run := func(ctx context.Context) error {
		for _, def := range c.Reads {
			select {
			case <-k.t.Cache(def, "").Synced():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return c.run(ctx, k)
	}
	if env.Leadership == nil {
		return run(ctx)
	}
	return env.Leadership.Lead(ctx, run)
}

// RunAll runs controllers side by side until ctx ends or one of them fails.
func RunAll(ctx context.Context, controllers []*Controller, env Env) error {
	g := task.NewGroup(ctx)
	for _, c := range controllers {
		g.Go(c.Name, func(ctx context.Context) error { return c.Run(ctx, env) })
	}
	return g.Wait()
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
	return r.run(ctx, append([]Watch{own}, s.Watches...), s.Workers)
}

// runner is one run of a controller with keys.
type runner struct {
	k         *Kit
	q         *queue
	reconcile func(ctx context.Context, key string) (Next, error)
}

func (r *runner) run(ctx context.Context, watches []Watch, workers int) error {
	defer r.q.end()
	g := task.NewGroup(ctx)
	for _, w := range watches {
		g.Go("watch "+w.Def.String(), func(ctx context.Context) error { return r.follow(ctx, w) })
	}
	for range cmp.Or(workers, defaultWorkers) {
		g.Go("worker", r.work)
	}
	return g.Wait()
}

// follow wakes the keys of every change of an input (C4). A follower that fell
// too far behind starts again from the present state, and then wakes once more
// what it woke for the state it knew before, because deletions may have been missed.
func (r *runner) follow(ctx context.Context, w Watch) error {
	c := r.k.t.Cache(w.Def, "")
	var before map[string]*cache.Item
	for {
		known := map[string]*cache.Item{} // what has been seen, by the input's own key
		err := c.Watch(ctx, cache.CursorOptions{FromNow: true}, func(events []cache.Event) error {
			for i := range events {
				r.wake(&events[i], w)
				note(known, &events[i])
			}
			for _, it := range before {
				r.wake(&cache.Event{Item: it}, w)
			}
			before = nil
			return nil
		})
		if ctx.Err() != nil {
			return nil
		}
		r.k.Logger.Warn("fell behind, reading everything again", "resource", w.Def.String(), "err", err)
		for key, it := range before { // not even the present state was read
			if known[key] == nil {
				known[key] = it
			}
		}
		before = known
	}
}

func note(known map[string]*cache.Item, e *cache.Event) {
	if e.Type == cache.Deleted {
		delete(known, e.Item.Key)
	} else {
		known[e.Item.Key] = e.Item
	}
}

func (r *runner) wake(e *cache.Event, w Watch) {
	if w.Same != nil && e.Prev != nil && e.Type != cache.Deleted && w.Same(e.Prev.Object, e.Item.Object) {
		return
	}
	now := w.Keys(r.k, e.Item.Object)
	for _, key := range now {
		r.k.m.add()
		r.q.add(key)
	}
	if e.Prev == nil {
		return
	}
	for _, key := range w.Keys(r.k, e.Prev.Object) {
		if !slices.Contains(now, key) {
			r.k.m.add()
			r.q.add(key)
		}
	}
}

func (r *runner) work(ctx context.Context) error {
	for {
		key, ok := r.q.pop(ctx)
		if !ok {
			return nil
		}
		started := time.Now()
		w := &written{}
		next, err := r.guarded(context.WithValue(ctx, writtenKey{}, w), key)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !quiet(err) {
			r.k.Logger.Error("reconcile", "key", key, "err", err) // C8
		}
		r.k.m.done(time.Since(started), err != nil)
		r.q.done(key, result{after: next.after, failed: err != nil, wrote: w.take()})
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

// guarded bounds a reconcile in time and turns its panics into errors.
func (r *runner) guarded(ctx context.Context, key string) (next Next, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, reconcileDeadline)
	defer cancel()
	return r.reconcile(ctx, key)
}
