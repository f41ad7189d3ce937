package edgefeed

import (
	"context"
	"math"
	"sync"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/drain"
)

// inForce is up to which revision of EndpointSlices the tables of one edge are true.
type inForce struct {
	cache.Progress

	mu struct {
		sync.Mutex
		under []generation // that were sent and are not acknowledged, in order
	}
}

// generation is an order, and the revision that its table is of.
type generation struct{ number, rev int64 }

// sent notes an order.
func (r *inForce) sent(number, rev int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.under = append(r.mu.under, generation{number, rev})
}

// same notes that up to a revision there is nothing that the edge needs to be told.
func (r *inForce) same(rev int64) {
	r.mu.Lock()
	n := len(r.mu.under)
	if n > 0 {
		r.mu.under[n-1].rev = rev
	}
	r.mu.Unlock()
	if n == 0 {
		r.Advance(rev)
	}
}

// heard notes what the edge acknowledges.
func (r *inForce) heard(number int64) {
	var rev int64
	r.mu.Lock()
	for len(r.mu.under) > 0 && r.mu.under[0].number <= number {
		rev, r.mu.under = r.mu.under[0].rev, r.mu.under[1:]
	}
	r.mu.Unlock()
	r.Advance(rev)
}

var _ drain.Rules = (*Feeder)(nil)

// Rev is up to which revision of EndpointSlices the edge sends requests where they lead. A node
// without an edge sends none.
func (f *Feeder) Rev() int64 {
	if r := f.rules.Load(); r != nil {
		return r.Rev()
	}
	return math.MaxInt64
}

// Wait returns when that is so up to a revision, or ctx ends.
func (f *Feeder) Wait(ctx context.Context, rev int64) error {
	if r := f.rules.Load(); r != nil {
		return r.Wait(ctx, rev)
	}
	return nil
}

// serveAnew notes that an edge is told what it serves.
func (f *Feeder) serveAnew() *inForce {
	r := &inForce{}
	if old := f.rules.Swap(r); old != nil {
		// Who waits for what it was not known to be has it from the first table, which is newer.
		r.Notify(1, func() { old.Advance(math.MaxInt64) })
	}
	return r
}

// serveNothing notes that no edge serves, so that nobody waits for one.
func (f *Feeder) serveNothing() {
	if old := f.rules.Swap(nil); old != nil {
		old.Advance(math.MaxInt64)
	}
}
