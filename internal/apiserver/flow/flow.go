package flow

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Limits bound a Limiter.
type Limits struct {
	Running int           // requests that run at one time
	Kept    int           // places, of those, that only the system's flows may take
	Waiting int           // requests of one flow that wait
	Wait    time.Duration // how long a request waits at most
}

// Flow is whose request it is.
type Flow struct {
	Name string
	// System flows keep the cluster going: places are kept for them, and they go
	// before all others that wait.
	System bool
}

// Limiter gives out places. Its methods may be called concurrently.
type Limiter struct {
	limits Limits

	mu struct {
		sync.Mutex
		running int            // requests that hold a place
		others  int            // those of them that are not the system's
		held    map[string]int // places, by flow
		lines   map[string][]*place
		turns   [2][]Flow // the flows that wait, the next one first: the system's, and the others
	}
}

// place is one request that waits.
type place struct{ ready chan struct{} }

// New returns a limiter with all places free.
func New(l Limits) *Limiter {
	limiter := &Limiter{limits: l}
	limiter.mu.held, limiter.mu.lines = map[string]int{}, map[string][]*place{}
	return limiter
}

// Acquire takes a place for a request of a flow, waiting for it if need be; if it
// returns false the request has to be refused. Release must be called when the
// request is done.
func (l *Limiter) Acquire(ctx context.Context, f Flow) bool {
	p, ok := l.enter(f)
	if p == nil {
		return ok
	}
	timer := time.NewTimer(l.limits.Wait)
	defer timer.Stop()
	select {
	case <-p.ready:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return !l.abandon(f, p) // or else it was its turn at the same moment
}

// enter takes a place, or stands in line as p. Without p, ok tells whether there
// was a place, or not even one in the line.
func (l *Limiter) enter(f Flow) (p *place, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.mu.lines[f.Name]
	if len(line) == 0 && l.mayTakeLocked(f) {
		l.takeLocked(f)
		return nil, true
	}
	if len(line) >= l.limits.Waiting {
		return nil, false
	}
	p = &place{ready: make(chan struct{})}
	if len(line) == 0 {
		turns := l.turnsLocked(f)
		*turns = append(*turns, f)
	}
	l.mu.lines[f.Name] = append(line, p)
	return p, true
}

// mayTakeLocked: a flow may hold as many places as it leaves free. So one that
// takes all it can get leaves half of them, two leave a third, and who comes
// next always finds one.
func (l *Limiter) mayTakeLocked(f Flow) bool {
	free := l.limits.Running - l.mu.running
	if !f.System {
		free = min(free, l.limits.Running-l.limits.Kept-l.mu.others)
	}
	return l.mu.held[f.Name] < free
}

func (l *Limiter) takeLocked(f Flow) {
	l.mu.running++
	l.mu.held[f.Name]++
	if !f.System {
		l.mu.others++
	}
}

// turnsLocked are the turns that a flow stands in.
func (l *Limiter) turnsLocked(f Flow) *[]Flow {
	if f.System {
		return &l.mu.turns[0]
	}
	return &l.mu.turns[1]
}

// Release gives back a place that a flow has acquired, and hands it on to whose
// turn it is.
func (l *Limiter) Release(f Flow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.running--
	if !f.System {
		l.mu.others--
	}
	if l.mu.held[f.Name]--; l.mu.held[f.Name] == 0 {
		delete(l.mu.held, f.Name)
	}
	for l.handOnLocked() {
	}
}

// handOnLocked gives a place to the first flow that may have one, and reports
// whether there is such a flow.
func (l *Limiter) handOnLocked() bool {
	for i := range l.mu.turns {
		turns := &l.mu.turns[i]
		at := slices.IndexFunc(*turns, l.mayTakeLocked)
		if at < 0 {
			continue
		}
		f := (*turns)[at]
		l.takeLocked(f)
		line := l.mu.lines[f.Name]
		close(line[0].ready)
		*turns = slices.Delete(*turns, at, at+1)
		if len(line) > 1 {
			l.mu.lines[f.Name] = line[1:]
			*turns = append(*turns, f)
			return true
		}
		delete(l.mu.lines, f.Name)
		return true
	}
	return false
}

// abandon leaves the line; false: the place is the request's already.
func (l *Limiter) abandon(f Flow, p *place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.mu.lines[f.Name]
	i := slices.Index(line, p)
	if i < 0 {
		return false
	}
	if len(line) > 1 {
		l.mu.lines[f.Name] = slices.Delete(line, i, i+1)
		return true
	}
	delete(l.mu.lines, f.Name)
	turns := l.turnsLocked(f)
	*turns = slices.DeleteFunc(*turns, func(other Flow) bool { return other.Name == f.Name })
	return true
}
