package etcd

import (
	"context"
	"errors"
	"fmt"

	"github.com/kemudi/kemudi/internal/task"
)

// errReopens ends a spell of the server's etcd that another one follows.
var errReopens = errors.New("etcd is opened anew")

// reopening is a request to end the etcd of this process and to start it again. Callers of
// the store wait in the meantime.
type reopening struct {
	change func(o *Options) // nil: nothing
	forced bool             // this member's data becomes that of a cluster of one
	before Options          // what to go back to if it cannot be
	done   chan error

	answered bool
}

// answer tells who asked, the first time it is called. There need not be anybody.
func (r *reopening) answer(err error) {
	if r != nil && !r.answered {
		r.answered = true
		r.done <- err // it has room for one
	}
}

// reopen opens etcd anew.
func (s *Server) reopen(ctx context.Context, r *reopening) error {
	r.done = make(chan error, 1)
	select {
	case s.reopens <- r:
	case <-s.stopped:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-r.done:
		return err
	case <-s.stopped:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// SetPeer changes how other members reach this one: from the zero Peer, with the timers of a
// member that is alone, to one that can be joined, back to it when all others have been
// removed, or to another address. If it cannot be, all is as it was.
func (s *Server) SetPeer(ctx context.Context, p Peer) error {
	if err := p.check(); err != nil {
		return err
	}
	m, leave, err := s.here(ctx)
	if err != nil {
		return err
	}
	alone := m.alone()
	leave()
	if !p.set() && !alone {
		return fmt.Errorf("%w: there are other members, which have to reach this one", ErrMember)
	}
	return s.reopen(ctx, &reopening{change: func(o *Options) { o.Peer = p }})
}

// ForceNew makes a cluster of one of what this member has. It is for the survivor of a
// majority that is lost: writes that only the others had are gone, and none of them may run
// on its data again.
func (s *Server) ForceNew(ctx context.Context) error {
	return s.reopen(ctx, &reopening{forced: true})
}

// Recover does so with a store that no process has, and leaves it behind as one that is alone.
func Recover(ctx context.Context, o Options) (err error) {
	s, err := New(o)
	if err != nil {
		return err
	}
	g := task.NewGroup(ctx)
	g.Go("store", func(ctx context.Context) error { return s.run(ctx, &reopening{forced: true, answered: true}) })
	select {
	case <-s.Ready():
		g.Cancel(context.Canceled)
	case <-g.Context().Done():
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// open starts the etcd of this process. forced makes a cluster of one of its data.
func (o Options) open(forced bool) (*member, error) {
	c, err := o.config()
	if err != nil {
		return nil, err
	}
	c.ForceNewCluster = forced
	if err := o.checkCluster(); err != nil {
		return nil, err
	}
	if err := o.clearStillborn(); err != nil {
		return nil, err
	}
	k, err := o.checkFiles()
	if err != nil {
		return nil, err
	}
	if !forced {
		if err := o.settleParting(k); err != nil {
			return nil, err
		}
	}
	e, err := o.start(c)
	if err != nil {
		return nil, err
	}
	m := o.newMember(e)
	m.applied, m.forced = k.applied, forced
	return m, nil
}
