package task

import (
	"context"
	"slices"
	"sync"
)

// Pool lends its goroutines to groups whose tasks are many and short. A few of them wait for
// the next task of any group while they have nothing to do: a goroutine that begins has a small
// stack, and to let that grow may cost more than the task.
type Pool struct {
	owner *Group
	name  string
	spare int // how many goroutines wait when nothing is to be done
	open  sync.Once

	mu struct {
		sync.Mutex
		waiting []chan func() // each of a goroutine; the last to wait is the first to run: its stack has grown
	}
}

// NewPool returns a pool of the owner's goroutines, of which spare wait when there is
// nothing to do, until the owner's context ends. They begin with the first group. Groups of the
// pool live in tasks of the owner.
func NewPool(owner *Group, name string, spare int) *Pool {
	return &Pool{owner: owner, name: name, spare: spare}
}

// Group returns a group whose tasks run on the pool's goroutines.
func (p *Pool) Group(ctx context.Context) *Group {
	p.open.Do(func() {
		for range p.spare {
			p.begin(func() {})
		}
	})
	g := NewGroup(ctx)
	g.start = func(f func()) {
		g.wg.Add(1)
		p.run(func() {
			defer g.wg.Done()
			f()
		})
	}
	return g
}

// run runs f on a goroutine that waits, or else on a new one.
func (p *Pool) run(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.mu.waiting) - 1
	if last < 0 {
		p.begin(f)
		return
	}
	p.mu.waiting[last] <- f
	p.mu.waiting = p.mu.waiting[:last]
}

// begin starts a goroutine that runs f, and then what it is handed while it waits.
func (p *Pool) begin(f func()) {
	p.owner.Go(p.name, func(ctx context.Context) error {
		handed := make(chan func(), 1) // who hands it over waits for nothing
		for ; f != nil; f = p.next(ctx, handed) {
			f()
		}
		return nil
	})
}

// next waits for a task, unless enough others do; nil: there is none.
func (p *Pool) next(ctx context.Context, handed chan func()) func() {
	if !p.wait(handed) {
		return nil
	}
	select {
	case f := <-handed:
		return f
	case <-ctx.Done():
		return p.leave(handed)
	}
}

// wait has a goroutine wait, unless enough do.
func (p *Pool) wait(handed chan func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.waiting) >= p.spare {
		return false
	}
	p.mu.waiting = append(p.mu.waiting, handed)
	return true
}

// leave takes a goroutine from those that wait, and returns the task that it was handed just before, or nil.
func (p *Pool) leave(handed chan func()) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.mu.waiting, handed)
	if i < 0 {
		return <-handed
	}
	p.mu.waiting = slices.Delete(p.mu.waiting, i, i+1)
	return nil
}
