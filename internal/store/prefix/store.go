package prefix

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/store"
)

// Registry is the prefix of all keys, as those above the store know them.
const Registry = "/registry"

// Store is a store over another one, in which keys have another prefix. Its methods may be called concurrently.
type Store struct {
	store.Store
	at string // in place of Registry; without a slash at its end
}

var _ store.Store = (*Store)(nil)

// Over returns a store over another one, in which keys begin with at.
func Over(under store.Store, at string) *Store {
	return &Store{Store: under, at: strings.TrimRight(Clean(at), "/")}
}

// Clean is a prefix as keys have it, whether or not people have written its slashes.
func Clean(at string) string { return path.Join("/", at) }

// down is a key as the store below has it.
func (s *Store) down(key string) string {
	rest, ok := strings.CutPrefix(key, Registry)
	if !ok {
		return key
	}
	return s.at + rest
}

// up is down the other way.
func (s *Store) up(key string) string {
	rest, ok := strings.CutPrefix(key, s.at)
	if !ok {
		return key
	}
	return Registry + rest
}

// Get reads one key.
func (s *Store) Get(ctx context.Context, key string) (store.KV, int64, error) {
	kv, rev, err := s.Store.Get(ctx, s.down(key))
	kv.Key = key
	return kv, rev, err
}

// List reads the keys with a prefix.
func (s *Store) List(ctx context.Context, prefix string, o store.ListOptions) (store.Page, error) {
	if o.From != "" {
		o.From = s.down(o.From)
	}
	page, err := s.Store.List(ctx, s.down(prefix), o)
	for i := range page.KVs {
		page.KVs[i].Key = s.up(page.KVs[i].Key)
	}
	return page, err
}

// Txn applies all writes in one revision if all conditions hold.
func (s *Store) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	t.Conds, t.Ops = slices.Clone(t.Conds), slices.Clone(t.Ops)
	for i := range t.Conds {
		t.Conds[i].Key = s.down(t.Conds[i].Key)
	}
	for i := range t.Ops {
		t.Ops[i].Key = s.down(t.Ops[i].Key)
	}
	res, err := s.Store.Txn(ctx, t)
	for i := range res.Now {
		res.Now[i].Key = s.up(res.Now[i].Key)
	}
	return res, err
}

// Watch calls fn with the changes under a prefix.
func (s *Store) Watch(ctx context.Context, prefix string, after int64, fn func([]store.Change, int64) error) error {
	return s.Store.Watch(ctx, s.down(prefix), after, func(changes []store.Change, progress int64) error {
		for i := range changes {
			changes[i].Key = s.up(changes[i].Key)
		}
		return fn(changes, progress)
	})
}
