package task

import (
	"context"
	"sync/atomic"
)

// Pool lends its goroutines to groups whose tasks are many and short. The few that have
// nothing to do wait for the next task of any group: a goroutine that begins has a small
// stack, and to let that grow may cost more than the task.
type Pool struct {
	owner *Group
	name  string
	spare int32 // most goroutines that wait
	idle  atomic.Int32
	tasks chan func()
}

// NewPool returns a pool of the owner's goroutines, of which up to spare wait when there is
// nothing to do, until the owner's context ends. Groups of the pool live in tasks of the owner.
func NewPool(owner *Group, name string, spare int) *Pool {
	return &Pool{owner: owner, name: name, spare: int32(spare), tasks: make(chan func())}
}

// Group returns a group whose tasks run on the pool's goroutines.
func (p *Pool) Group(ctx context.Context) *Group {
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
	select {
	case p.tasks <- f:
	default:
		p.owner.Go(p.name, func(ctx context.Context) error {
			for ; f != nil; f = p.next(ctx) {
				f()
			}
			return nil
		})
	}
}

// next waits for a task, unless enough others do; nil: there is none.
func (p *Pool) next(ctx context.Context) func() {
	defer p.idle.Add(-1)
	if p.idle.Add(1) > p.spare {
		return nil
	}
	select {
	case f := <-p.tasks:
		return f
	case <-ctx.Done():
		return nil
	}
}
