package etcd

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdlease "go.etcd.io/etcd/server/v3/lease"

	"github.com/kemudi/kemudi/internal/store"
)

// lives are the lives that were begun here. A life is a lease of etcd's, which grants none of less
// than its election time and a half: what was begun with the timers of a single member is renewed
// no more when there are several.
type lives struct {
	mu struct {
		sync.Mutex
		begun map[store.Life]*spell
	}
}

// gone says of a life that it has ended.
var gone = []error{rpctypes.ErrLeaseNotFound, etcdlease.ErrLeaseNotFound}

// BeginLife begins a life.
func (s *Store) BeginLife(ctx context.Context, ttl time.Duration) (store.Life, error) {
	sp, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer s.leave(sp)
	var r *clientv3.LeaseGrantResponse
	err = sp.read(ctx, func(ctx context.Context) (err error) {
		r, err = sp.api().Grant(ctx, int64(math.Ceil(ttl.Seconds())))
		return err
	})
	if err != nil {
		return 0, s.explain(ctx, "grant a lease", err)
	}
	id := store.Life(r.ID)
	s.lives.mu.Lock()
	defer s.lives.mu.Unlock()
	if s.lives.mu.begun == nil {
		s.lives.mu.begun = map[store.Life]*spell{}
	}
	s.lives.mu.begun[id] = sp
	return id, nil
}

// RenewLife lets a life begin anew.
func (s *Store) RenewLife(ctx context.Context, l store.Life) error {
	sp, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.leave(sp)
	s.lives.mu.Lock()
	begun := s.lives.mu.begun[l]
	s.lives.mu.Unlock()
	if begun != sp {
		s.forget(l)
		return store.ErrLifeOver
	}
	bounded, cancel, err := sp.bound(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	err = because(bounded, sp.keepAlive(bounded, clientv3.LeaseID(l)))
	if oneOf(err, gone) {
		s.forget(l)
		return store.ErrLifeOver
	}
	return s.explain(ctx, "keep a lease alive", err)
}

// EndLife ends a life at once.
func (s *Store) EndLife(ctx context.Context, l store.Life) error {
	sp, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.leave(sp)
	err = sp.read(ctx, func(ctx context.Context) error {
		_, err := sp.api().Revoke(ctx, clientv3.LeaseID(l))
		return err
	})
	s.forget(l)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return s.explain(ctx, "end a lease", err)
}

func (s *Store) forget(l store.Life) {
	s.lives.mu.Lock()
	defer s.lives.mu.Unlock()
	delete(s.lives.mu.begun, l)
}
