package fair

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Limits bound a Limiter.
type Limits struct {
	Running int           // requests that run at one time
	Waiting int           // requests of one flow that wait
	Wait    time.Duration // how long a request waits at most
}

// Limiter gives out places. Its methods may be called concurrently.
type Limiter struct {
	limits Limits

	mu struct {
		sync.Mutex
		running int
		lines   map[string][]*place // those who wait, by flow
		turns   []string            // the flows that wait, the next one first
	}
}

// place is one request that waits.
type place struct{ ready chan struct{} }

// New returns a limiter with all places free.
func New(l Limits) *Limiter {
	limiter := &Limiter{limits: l}
	limiter.mu.lines = map[string][]*place{}
	return limiter
}

// Acquire takes a place for a request of a flow, waiting for it if need be; ok
// is false if the request has to be refused. release must be called when the
// request is done.
func (l *Limiter) Acquire(ctx context.Context, flow string) (release func(), ok bool) {
	p, ok := l.enter(flow)
	if p == nil {
		return l.leave, ok
	}
	timer := time.NewTimer(l.limits.Wait)
	defer timer.Stop()
	select {
	case <-p.ready:
		return l.leave, true
	case <-timer.C:
	case <-ctx.Done():
	}
	if l.abandon(flow, p) {
		return nil, false
	}
	return l.leave, true // it was its turn at the same moment
}

// enter takes a free place, or stands in line as p. Without p, ok tells whether
// there was a place, or not even one in the line.
func (l *Limiter) enter(flow string) (p *place, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.running < l.limits.Running {
		l.mu.running++
		return nil, true
	}
	line := l.mu.lines[flow]
	if len(line) >= l.limits.Waiting {
		return nil, false
	}
	p = &place{ready: make(chan struct{})}
	if len(line) == 0 {
		l.mu.turns = append(l.mu.turns, flow)
	}
	l.mu.lines[flow] = append(line, p)
	return p, true
}

// leave hands a place on to whose turn it is.
func (l *Limiter) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.turns) == 0 {
		l.mu.running--
		return
	}
	flow := l.mu.turns[0]
	line := l.mu.lines[flow]
	close(line[0].ready)
	l.mu.turns = l.mu.turns[1:]
	if len(line) > 1 {
		l.mu.lines[flow] = line[1:]
		l.mu.turns = append(l.mu.turns, flow)
		return
	}
	delete(l.mu.lines, flow)
}

// abandon leaves the line; false: the place is the request's already.
func (l *Limiter) abandon(flow string, p *place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.mu.lines[flow]
	i := slices.Index(line, p)
	if i < 0 {
		return false
	}
	if len(line) > 1 {
		l.mu.lines[flow] = slices.Delete(line, i, i+1)
		return true
	}
	delete(l.mu.lines, flow)
	l.mu.turns = slices.DeleteFunc(l.mu.turns, func(f string) bool { return f == flow })
	return true
}
