package memory

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// Large is from how many bytes on a request must leave room for the small ones,
	// which keep nodes and controllers going.
	Large = 1 << 20
	// Shares of the limit, in percent, that large and small requests may fill. Closer
	// to the limit the collector would do little else than collect.
	largeShare, smallShare = 80, 95
	// fresh is how long what was measured is relied upon.
	fresh = 10 * time.Millisecond
)

// Budget gives out memory. Its methods may be called concurrently.
type Budget struct {
	limit func() int64
	used  func() int64 // without what is given out and not used yet

	mu struct {
		sync.Mutex
		given int64 // to requests that run
		used  int64
		at    time.Time // when used was measured; zero: never
	}
}

// New returns the budget of this process.
func New() *Budget {
	return Of(func() int64 { return debug.SetMemoryLimit(-1) }, inUse)
}

// Of returns a budget of limit bytes, used of which are in use already.
// Both are called by one goroutine at a time.
func Of(limit, used func() int64) *Budget { return &Budget{limit: limit, used: used} }

// Take takes n bytes; ok is false if there are not as many, which is never so for none. give gives them back
// and must be called once if ok is true.
func (b *Budget) Take(n int64) (give func(), ok bool) {
	share := int64(smallShare)
	if n >= Large {
		share = largeShare
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := b.limit()
	if n == 0 || limit == math.MaxInt64 {
		return func() {}, true
	}
	if now := time.Now(); b.mu.at.IsZero() || now.Sub(b.mu.at) > fresh {
		b.mu.used, b.mu.at = b.used(), now
	}
	if b.mu.used+b.mu.given+n > limit/100*share {
		return nil, false
	}
	b.mu.given += n
	return func() { b.give(n) }, true
}

func (b *Budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.given -= n
}

// inUse is what the process holds on to: objects that were alive at the end of the
// last collection, and all that is no heap. Near the limit collections follow
// each other closely.
func inUse() int64 {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(samples)
	sum := samples[0].Value.Uint64() + samples[1].Value.Uint64()
	for _, s := range samples[2:] {
		sum -= s.Value.Uint64()
	}
	return int64(sum)
}
