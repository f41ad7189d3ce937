package fence

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/kemudi/kemudi/internal/store"
)

// ErrLost answers the writes of who held something and does not any more.
var ErrLost = errors.New("this process does not lead any more: another one may have taken over")

// Hold is one key that somebody holds. Its methods may be called concurrently.
type Hold struct {
	key  string
	held func(value []byte) bool
	lost func()
	rev  atomic.Int64 // of the newest value that is known to be the holder's
}

// NewHold returns the hold of a key whose value at the revision is the holder's. held
// says whether a later value, nil if there is none, still is; lost is called, maybe more than
// once, when a write finds that it is not.
func NewHold(at store.Cond, held func(value []byte) bool, lost func()) *Hold {
	h := &Hold{key: at.Key, held: held, lost: lost}
	h.rev.Store(at.Rev)
	return h
}

// Renewed says that the holder has written the key at a revision.
func (h *Hold) Renewed(rev int64) {
	for {
		known := h.rev.Load()
		if known >= rev || h.rev.CompareAndSwap(known, rev) {
			return
		}
	}
}

type holdKey struct{}

// With returns a context whose writes fail with ErrLost once the hold is lost.
func With(ctx context.Context, h *Hold) context.Context { return context.WithValue(ctx, holdKey{}, h) }

// Store is a store that heeds the holds of contexts.
type Store struct{ store.Store }

var _ store.Store = Store{}

// Txn applies all writes in one revision if all conditions hold, and the context's
// hold with them. A hold that is renewed at the same time is no reason to refuse.
func (s Store) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	h, ok := ctx.Value(holdKey{}).(*Hold)
	if !ok {
		return s.Store.Txn(ctx, t)
	}
	n := len(t.Conds)
	for {
		at := store.Cond{Key: h.key, Rev: h.rev.Load()}
		res, err := s.Store.Txn(ctx, store.Txn{Conds: append(slices.Clip(t.Conds), at), Ops: t.Ops})
		if err != nil || res.OK {
			return res, err
		}
		now := res.Now[n]
		res.Now = res.Now[:n]
		switch {
		case now.Rev == at.Rev:
			return res, nil // refused by the other conditions
		case now.Rev == 0 || !h.held(now.Value):
			h.lost()
			return store.TxnResult{}, ErrLost
		}
		h.Renewed(now.Rev)
	}
}
