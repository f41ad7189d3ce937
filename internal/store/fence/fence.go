package fence

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kemudi/kemudi/internal/store"
)

// ErrLost answers the writes of who held something and does not any more.
var ErrLost = errors.New("this process does not lead any more: another one may have taken over")

// Hold is one key that somebody holds, or will. Its methods may be called concurrently.
type Hold struct {
	claim atomic.Pointer[Claim] // nil: nothing is held yet
	rev   atomic.Int64          // of the newest value that is known to be the holder's
	mu    struct {
		sync.Mutex
		free int           // writes under way that depend on nothing
		none chan struct{} // closed when there are none any more; nil: nobody waits for that
	}
}

// Claim is what writes depend on.
type Claim struct {
	At store.Cond // the key, and a revision at which its value is the holder's
	// Held says whether a later value, nil if there is none, still is.
	Held func(value []byte) bool
	// Lost is called, maybe more than once, when a write finds that it is not.
	Lost func()
}

// NewHold returns a hold on which no write depends before Take: its owner is alone with the store.
func NewHold() *Hold { return &Hold{} }

// Take makes all writes depend on a claim. It returns when all that did not depend on one
// have been answered, or ctx ends.
func (h *Hold) Take(ctx context.Context, c Claim) error {
	h.rev.Store(c.At.Rev)
	h.mu.Lock()
	h.claim.Store(&c)
	none := make(chan struct{})
	if h.mu.free == 0 {
		close(none)
	} else {
		h.mu.none = none
	}
	h.mu.Unlock()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin is what a write depends on; nil: on nothing, and end is to be called after it.
func (h *Hold) begin() *Claim {
	if c := h.claim.Load(); c != nil {
		return c
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.claim.Load(); c != nil {
		return c
	}
	h.mu.free++
	return nil
}

// end ends a write that depended on nothing.
func (h *Hold) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.free--; h.mu.free == 0 && h.mu.none != nil {
		close(h.mu.none)
		h.mu.none = nil
	}
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

// With returns a context whose writes fail with ErrLost once what the hold claims is lost.
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
	c := h.begin()
	if c == nil {
		defer h.end()
		return s.Store.Txn(ctx, t)
	}
	n := len(t.Conds)
	for {
		at := store.Cond{Key: c.At.Key, Rev: h.rev.Load()}
		res, err := s.Store.Txn(ctx, store.Txn{Conds: append(slices.Clip(t.Conds), at), Ops: t.Ops})
		if err != nil || res.OK {
			return res, err
		}
		now := res.Now[n]
		res.Now = res.Now[:n]
		switch {
		case now.Rev == at.Rev:
			return res, nil // refused by the other conditions
		case now.Rev == 0 || !c.Held(now.Value):
			c.Lost()
			return store.TxnResult{}, ErrLost
		}
		h.Renewed(now.Rev)
	}
}
