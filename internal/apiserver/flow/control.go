package flow

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options are what a Control works with.
type Options struct {
	Seats    int                   // that there are for all levels
	Wait     time.Duration         // how long a request waits at most
	Registry prometheus.Registerer // takes the metrics; nil: they are not shown
}

// Control gives out seats. Its methods may be called concurrently.
type Control struct {
	o       Options
	seed    maphash.Seed
	ranking atomic.Pointer[ranking]
	metrics *metrics

	configuring sync.Mutex // one after the other
	mu          struct {
		sync.Mutex
		levels []*level // those in force, and those that are gone and have requests
		pool   int      // seats that levels lend
		lent   int      // of those, in use: by whoever has more than it keeps
	}
}

// New returns a control with the configuration of a cluster that has none.
func New(o Options) *Control {
	c := &Control{o: o, seed: maphash.MakeSeed()}
	c.metrics = newMetrics(c, o.Registry)
	c.Configure(nil, nil)
	return c
}

// Held are the seats of a request that runs. They belong to the request's goroutine.
type Held struct {
	flow  Flow
	seats int
	began time.Time
	queue *queue // from which it came; nil: it has not waited
	guess float64
}

// Refusal is why a request gets no seats, as metrics have it.
type Refusal string

// The refusals.
const (
	QueueFull        Refusal = "queue-full"
	ConcurrencyLimit Refusal = "concurrency-limit"
	TimeOut          Refusal = "time-out"
	Cancelled        Refusal = "cancelled"
)

// Acquire takes seats for a request, at most as many as its level gives to one, waiting for them if
// need be; after a refusal it must not run. Release must be called when the request is done. about is what it is.
func (c *Control) Acquire(ctx context.Context, f Flow, seats int, about *Request) (Held, Refusal) {
	h := Held{flow: f, began: time.Now()}
	if f.Exempt() {
		f.schema.begun()
		return h, ""
	}
	h.seats = max(1, min(seats, f.MostSeats()))
	p, refusal := c.enter(f, &h.seats, about)
	f.schema.seats.Observe(float64(h.seats))
	if refusal != "" {
		f.schema.refused(refusal)
		return h, refusal
	}
	if p == nil {
		f.schema.begun()
		return h, ""
	}
	refusal = c.wait(ctx, p)
	now := time.Now()
	f.schema.waiting.Add(-1)
	f.schema.waitingSeats.Add(-int64(p.seats))
	if refusal != "" {
		f.schema.unserved.observe(now.Sub(h.began))
		f.schema.refused(refusal)
		return h, refusal
	}
	f.schema.waited.observe(now.Sub(h.began))
	f.schema.begun()
	h.began, h.queue, h.guess = now, p.queue, p.guess
	return h, ""
}

// enter takes seats, or stands in line as the place that it returns.
func (c *Control) enter(f Flow, seats *int, about *Request) (*place, Refusal) {
	l := f.schema.level
	c.mu.Lock()
	defer c.mu.Unlock()
	*seats = max(1, min(*seats, l.most))
	if !l.wide {
		if held := l.held[f.hash]; held+*seats <= c.freeLocked(l) {
			c.useLocked(l, f.hash, *seats)
			return nil, ""
		}
	}
	if l.deck == nil {
		return nil, ConcurrencyLimit
	}
	p := l.join(f, *seats)
	if p == nil {
		return nil, QueueFull
	}
	p.about, p.came = *about, time.Now()
	f.schema.lengths.Observe(float64(len(p.queue.line)))
	f.schema.waiting.Add(1)
	f.schema.waitingSeats.Add(int64(*seats))
	c.handOnLocked() // it may be alone, and wider than what is free to it
	return p, ""
}

func (c *Control) wait(ctx context.Context, p *place) Refusal {
	timer := time.NewTimer(c.o.Wait)
	defer timer.Stop()
	refusal := TimeOut
	select {
	case <-p.ready:
		return ""
	case <-timer.C:
	case <-ctx.Done():
		refusal = Cancelled
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := p.flow.schema.level; !l.leave(p) {
		return "" // it was its turn at the same moment
	} else if l.wide {
		c.handOnLocked() // it may have been what the others waited for
	}
	return refusal
}

// freeLocked is how many seats a level may take now (F2).
func (c *Control) freeLocked(l *level) int {
	return min(l.most-l.used, max(0, l.kept-l.used)+max(0, c.mu.pool-c.mu.lent))
}

// useLocked takes seats for a flow of a level, or gives them back.
func (c *Control) useLocked(l *level, hash uint64, seats int) {
	c.mu.lent -= max(0, l.used-l.kept)
	l.used += seats
	c.mu.lent += max(0, l.used-l.kept)
	if l.held[hash] += seats; l.held[hash] == 0 {
		delete(l.held, hash)
	}
}

// Release gives back the seats of a request that is done, and hands them on to whose turn it is.
func (c *Control) Release(h *Held) {
	took := time.Since(h.began)
	h.flow.schema.ended(took)
	l := h.flow.schema.level
	if l.exempt {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l.ended(h, took)
	c.useLocked(l, h.flow.hash, -h.seats)
	l.rest()
	c.handOnLocked()
}

// handOnLocked gives seats to all who may have some.
func (c *Control) handOnLocked() {
	for {
		l, p := c.nextLocked()
		if p == nil {
			return
		}
		c.useLocked(l, p.flow.hash, p.seats)
		l.dispatch(p)
	}
}

// nextLocked is whose turn it is: of the level that has the least of its own, before those that
// borrow.
func (c *Control) nextLocked() (*level, *place) {
	var room [8]*level // more are rare
	waiting := room[:0]
	for _, l := range c.mu.levels {
		if l.waiting > 0 {
			waiting = append(waiting, l)
		}
	}
	if len(waiting) > 1 {
		slices.SortStableFunc(waiting, func(a, b *level) int { // used/nominal, without dividing
			return a.used*max(1, b.nominal) - b.used*max(1, a.nominal)
		})
	}
	for _, l := range waiting {
		if p := l.next(c.freeLocked(l)); p != nil {
			return l, p
		}
	}
	return nil, nil
}
