package task

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Group runs named tasks that live and end together: the first one to return
// an error cancels the context of all others, with that error as the cause.
// All methods may be called concurrently.
type Group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	start  func(f func()) // runs f as a part of wg

	mu struct {
		sync.Mutex
		err error // the first error that was not a cancellation
	}
}

// NewGroup returns a group whose tasks see a context derived from ctx.
// The caller must call Wait, or the context leaks.
func NewGroup(ctx context.Context) *Group {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &Group{ctx: ctx, cancel: cancel}
	g.start = g.wg.Go
	return g
}

// Context is what the group's tasks are given. It ends when a task fails, when
// Cancel is called or when the parent ends.
func (g *Group) Context() context.Context { return g.ctx }

// Go starts f as the task called name. A panic in f is turned into an error of
// the group that carries the stack, so that one broken task ends the group in
// order rather than the process at once.
func (g *Group) Go(name string, f func(ctx context.Context) error) {
	g.start(func() {
		err := Contain(func() error { return f(g.ctx) })
		// Who only passes on why the group ends has not failed himself.
		if err == nil || g.ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(g.ctx))) {
			return
		}
		err = fmt.Errorf("%s: %w", name, err)
		g.mu.Lock()
		if g.mu.err == nil {
			g.mu.err = err
		}
		g.mu.Unlock()
		g.cancel(err)
	})
}

// Cancel asks every task to end; why becomes the context's cause.
func (g *Group) Cancel(why error) { g.cancel(why) }

// Wait blocks until every task has returned and gives the first error that was
// not a mere cancellation.
func (g *Group) Wait() error {
	g.wg.Wait()
	g.cancel(context.Canceled)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.err
}
