package task

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestPoolKeepsAsManyGoroutinesAsMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := NewGroup(t.Context())
		pool := NewPool(owner, "worker", 2)
		a, b := pool.Group(owner.Context()), pool.Group(owner.Context())
		var ran atomic.Int32
		for range 3 { // the second and third time by those that have waited
			release := make(chan struct{})
			for _, g := range []*Group{a, b, a, b, a} {
				g.Go("task", func(context.Context) error {
					ran.Add(1)
					<-release
					return nil
				})
			}
			synctest.Wait()
			close(release)
			synctest.Wait()
			if n := len(pool.mu.waiting); n != 2 {
				t.Fatalf("got %d goroutines that wait, want 2", n)
			}
		}
		if n := ran.Load(); n != 15 {
			t.Errorf("got %d tasks that were run, want 15", n)
		}
		owner.Cancel(context.Canceled)
		for _, g := range []*Group{a, b, owner} {
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestPoolIsTheSameAtRest whatever has run: who counts goroutines finds as many as before.
func TestPoolIsTheSameAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := NewGroup(t.Context())
		pool := NewPool(owner, "worker", 3)
		g := pool.Group(owner.Context())
		for round := range 2000 {
			for range round % 8 {
				g.Go("task", func(context.Context) error { return nil })
			}
			synctest.Wait()
			if n := len(pool.mu.waiting); n != 3 {
				t.Fatalf("round %d: got %d goroutines that wait, want 3", round, n)
			}
		}
		owner.Cancel(context.Canceled)
		for _, g := range []*Group{g, owner} {
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestTaskThatFailsEndsItsGroupAndNotThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := NewGroup(t.Context())
		pool := NewPool(owner, "worker", 1)
		a, b := pool.Group(owner.Context()), pool.Group(owner.Context())
		a.Go("first", func(context.Context) error { panic("what is this?") })
		if err := a.Wait(); err == nil || !strings.Contains(err.Error(), "first: panic: what is this?") {
			t.Errorf("got %v, want the panic", err)
		}
		b.Go("second", func(ctx context.Context) error { return ctx.Err() })
		if err := b.Wait(); err != nil {
			t.Errorf("another group of the pool: got %v", err)
		}
		if err := owner.Context().Err(); err != nil {
			t.Errorf("the owner: got %v", err)
		}
		owner.Cancel(errors.New("enough"))
		if err := owner.Wait(); err != nil {
			t.Error(err)
		}
	})
}
