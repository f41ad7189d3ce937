package mem

import (
	"context"
	"time"

	"github.com/kemudi/kemudi/internal/store"
)

// life is what keeps some keys until nobody renews it.
type life struct {
	ttl  time.Duration
	end  *time.Timer
	keys map[string]int64 // the revision of the write that gave the key this life
}

// BeginLife begins a life.
func (s *Store) BeginLife(ctx context.Context, ttl time.Duration) (store.Life, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.lived++
	id := s.mu.lived
	l := &life{ttl: ttl, keys: map[string]int64{}}
	l.end = time.AfterFunc(ttl, func() { s.end(id) })
	s.mu.lives[id] = l
	return id, nil
}

// RenewLife lets a life begin anew.
func (s *Store) RenewLife(ctx context.Context, id store.Life) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.mu.lives[id]
	if l == nil || !l.end.Stop() { // its end is under way
		return store.ErrLifeOver
	}
	l.end.Reset(l.ttl)
	return nil
}

// EndLife ends a life at once.
func (s *Store) EndLife(ctx context.Context, id store.Life) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.end(id)
	return nil
}

// end deletes the keys of a life that were not written again.
func (s *Store) end(id store.Life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.mu.lives[id]
	if l == nil {
		return
	}
	delete(s.mu.lives, id)
	l.end.Stop()
	var ops []store.Op
	for key, rev := range l.keys {
		if s.nowLocked(key).Rev == rev {
			ops = append(ops, store.Op{Key: key})
		}
	}
	s.writeLocked(ops)
}
