package budget

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
	// Shares of the limit, in percent, that large requests, those of the system, and
	// small requests may fill. Closer to the limit the collector would do little else than collect.
	largeShare, systemShare, smallShare = 80, 85, 95
	// fresh is how long what was measured is relied upon.
	fresh = 10 * time.Millisecond
)

// Memory gives out memory. Its methods may be called concurrently.
type Memory struct {
	limit func() int64
	used  func() int64 // without what is given out and not used yet

	mu struct {
		sync.Mutex
		given int64            // to requests that run
		flows map[string]int64 // that, by flow
		used  int64
		at    time.Time // when used was measured; zero: never
	}
}

// New returns the budget of this process.
func New() *Memory {
	return Of(func() int64 { return debug.SetMemoryLimit(-1) }, inUse)
}

// Of returns a budget of limit bytes, used of which are in use already.
// Both are called by one goroutine at a time.
func Of(limit, used func() int64) *Memory {
	b := &Memory{limit: limit, used: used}
	b.mu.flows = map[string]int64{}
	return b
}

// Reservation is what a request holds of a budget. It grows as the request turns out to
// need more, and belongs to the request's goroutine. Give must be called in the end.
type Reservation struct {
	Budget *Memory
	Flow   string // whose request it is
	System bool   // it is one of those that keep the cluster going

	held int64
}

// Take takes n bytes more; ok is false if there are not as many, which is never so
// for none. The requests of one flow together get half of what there is, unless
// they are the system's: so that a single large one is not refused for being one.
func (r *Reservation) Take(n int64) (ok bool) {
	b := r.Budget
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := b.limit()
	if n == 0 || limit == math.MaxInt64 {
		return true
	}
	if now := time.Now(); b.mu.at.IsZero() || now.Sub(b.mu.at) > fresh {
		b.mu.used, b.mu.at = b.used(), now
	}
	room := limit/100*r.share(n) - b.mu.used
	if b.mu.given+n > room {
		return false
	}
	if flow := b.mu.flows[r.Flow]; !r.System && flow > r.held && flow+n > room/2 {
		return false
	}
	b.mu.given += n
	b.mu.flows[r.Flow] += n
	r.held += n
	return true
}

// share is how much of the limit may be filled when the request has n bytes more,
// in percent.
func (r *Reservation) share(n int64) int64 {
	switch {
	case r.held+n < Large:
		return smallShare
	case r.System:
		return systemShare
	}
	return largeShare
}

// Give gives all back that was taken.
func (r *Reservation) Give() {
	if r.held == 0 {
		return
	}
	b := r.Budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.given -= r.held
	if b.mu.flows[r.Flow] -= r.held; b.mu.flows[r.Flow] == 0 {
		delete(b.mu.flows, r.Flow)
	}
	r.held = 0
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
