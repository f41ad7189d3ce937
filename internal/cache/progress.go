package cache

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Progress says up to which revision a feed has been taken in. Caches that are
// fed together share one, so that waiting for a revision means the same for all.
type Progress struct {
	rev atomic.Int64
	mu  struct {
		sync.Mutex
		waiters []waiter
	}
}

type waiter struct {
	rev  int64
	done chan struct{}
	fn   func() // instead of done
}

// Rev is the last revision taken in; 0 before the first.
func (p *Progress) Rev() int64 { return p.rev.Load() }

// Advance is called by the feed after all caches took in revision rev.
// Revisions below the last one change nothing.
func (p *Progress) Advance(rev int64) {
	for _, fn := range p.advance(rev) {
		fn()
	}
}

func (p *Progress) advance(rev int64) (due []func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rev <= p.rev.Load() {
		return nil
	}
	p.rev.Store(rev)
	p.mu.waiters = slices.DeleteFunc(p.mu.waiters, func(w waiter) bool {
		if w.rev > rev {
			return false
		}
		if w.fn != nil {
			due = append(due, w.fn)
		} else {
			close(w.done)
		}
		return true
	})
	return due
}

// Notify calls fn once, when revision rev has been taken in: at once if it has
// been already, otherwise from Advance. fn must not block.
func (p *Progress) Notify(rev int64, fn func()) {
	p.mu.Lock()
	if p.rev.Load() < rev {
		p.mu.waiters = append(p.mu.waiters, waiter{rev: rev, fn: fn})
		fn = nil
	}
	p.mu.Unlock()
	if fn != nil {
		fn()
	}
}

// Wait returns when revision rev has been taken in, or ctx ends (K4).
func (p *Progress) Wait(ctx context.Context, rev int64) error {
	if p.rev.Load() >= rev {
		return nil
	}
	p.mu.Lock()
	if p.rev.Load() >= rev {
		p.mu.Unlock()
		return nil
	}
	w := waiter{rev: rev, done: make(chan struct{})}
	p.mu.waiters = append(p.mu.waiters, w)
	p.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.waiters = slices.DeleteFunc(p.mu.waiters, func(x waiter) bool { return x.fn == nil && x.done == w.done })
		return context.Cause(ctx)
	}
}
