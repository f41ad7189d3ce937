package seal

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
)

// Rules say how the value of a key is stored; nil: as it is. They may say something else later: each value
// has in itself how it is to be opened.
type Rules func(key string) *Chain

// Store is a store over another one, in which values lie encrypted. Its methods may be called concurrently.
type Store struct {
	store.Store
	rules Rules
}

var _ store.Store = (*Store)(nil)

// Over returns a store over another one.
func Over(under store.Store, r Rules) *Store { return &Store{Store: under, rules: r} }

// Get reads one key.
func (s *Store) Get(ctx context.Context, key string) (store.KV, int64, error) {
	kv, rev, err := s.Store.Get(ctx, key)
	if err == nil && kv.Rev != 0 {
		s.rules.Open(ctx, &kv)
	}
	return kv, rev, err
}

// List reads the keys with a prefix.
func (s *Store) List(ctx context.Context, prefix string, o store.ListOptions) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, o)
	if err != nil {
		return page, err
	}
	return page, s.openAll(ctx, page.KVs)
}

// together is how many values are worth a goroutine.
const together = 64

// openAll opens the values of a page, on several processors if there are many.
func (s *Store) openAll(ctx context.Context, kvs []store.KV) error {
	parts := min(runtime.GOMAXPROCS(0), len(kvs)/together)
	if parts <= 1 {
		for i := range kvs {
			s.rules.Open(ctx, &kvs[i])
		}
		return nil
	}
	g := task.NewGroup(ctx)
	for part := range slices.Chunk(kvs, (len(kvs)+parts-1)/parts) {
		g.Go("open values", func(ctx context.Context) error {
			for i := range part {
				s.rules.Open(ctx, &part[i])
			}
			return nil
		})
	}
	return g.Wait()
}

// Txn applies all writes in one revision if all conditions hold.
func (s *Store) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	own := false
	for i := range t.Ops {
		op := &t.Ops[i]
		if op.Value == nil {
			continue
		}
		c := s.rules(op.Key)
		if c == nil {
			continue
		}
		value, err := c.Seal(op.Value, op.Key)
		if err != nil {
			return store.TxnResult{}, fmt.Errorf("encrypt %s: %w", op.Key, err)
		}
		if !own {
			t.Ops, own = slices.Clone(t.Ops), true
		}
		t.Ops[i].Value = value
	}
	res, err := s.Store.Txn(ctx, t)
	if err != nil {
		return res, err
	}
	for i := range res.Now {
		if res.Now[i].Rev != 0 {
			s.rules.Open(ctx, &res.Now[i])
		}
	}
	return res, nil
}

// Watch calls fn with the changes under a prefix.
func (s *Store) Watch(ctx context.Context, prefix string, after int64, fn func([]store.Change, int64) error) error {
	return s.Store.Watch(ctx, prefix, after, func(changes []store.Change, progress int64) error {
		for i := range changes {
			if changes[i].Value != nil {
				s.rules.Open(ctx, &changes[i].KV)
			}
		}
		return fn(changes, progress)
	})
}

// void is the value of what cannot be opened: nobody takes it for one.
var void = []byte(mark)

// Open opens the value of a key that was read (E1).
func (r Rules) Open(ctx context.Context, kv *store.KV) {
	value, stale, err := r(kv.Key).Open(ctx, kv.Value, kv.Key)
	if err != nil {
		kv.Value, kv.Err, kv.Stale = void, err, true
		return
	}
	if value == nil {
		value = []byte{} // nil is that of a key that is deleted
	}
	kv.Value, kv.Stale = value, stale
}
