package reach

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// headStart is for how long a way is waited for before the next one is tried beside it.
const headStart = 150 * time.Millisecond

// remembered is for how long a way goes first that was not the first.
const remembered = 5 * time.Minute

// Kind is what sort of thing a target is. A node's agent may be reached by another
// way than its pods: ways are remembered by both.
type Kind int

// The kinds of targets.
const (
	Agent Kind = iota // the node's own agent
	Host              // another port of the machine
	Pod
)

// Target is what is to be reached.
type Target struct {
	Node string // where it is
	Kind Kind
	// Address is where it is in the network, "10.0.0.7:80". That of an agent may be
	// empty, if the node does not say.
	Address string
	// Prove has the other end of a connection prove who it is, and returns what to
	// use from then on. If it fails, it leaves the connection open. Nil: anybody is believed.
	Prove func(ctx context.Context, conn net.Conn) (net.Conn, error)
}

// Way is one way to targets.
type Way struct {
	Name string // as errors have it, and by what it is remembered
	// Dial connects to a target; ctx bounds the time until it has. It returns soon when ctx has ended.
	Dial func(ctx context.Context, to Target) (net.Conn, error)
}

// try connects by one way (W4).
func (w *Way) try(ctx context.Context, to Target) (net.Conn, error) {
	conn, err := w.Dial(ctx, to)
	if err != nil || to.Prove == nil {
		return conn, err
	}
	proved, err := to.Prove(ctx, conn)
	if err != nil {
		_ = conn.Close() // why is known
		return nil, err
	}
	return proved, nil
}

// Ways finds the way to targets. Its methods may be called concurrently.
type Ways struct {
	// list has the ways to a target that there are now, the best first.
	list func(to Target) []Way

	mu struct {
		sync.Mutex
		found map[place]find
		sweep int // at so many, what has ended is forgotten
	}
}

// place is what ways are remembered for.
type place struct {
	node string
	kind Kind
}

// find is a way that worked where the first did not.
type find struct {
	way   string
	until time.Time
}

// leastSweep is how many finds are never too many.
const leastSweep = 64

// New finds ways among those that list has for a target, the best first: one at least.
func New(list func(to Target) []Way) *Ways {
	w := &Ways{list: list}
	w.mu.found, w.mu.sweep = map[place]find{}, leastSweep
	return w
}

// Dial connects to a target. ctx bounds the time until it has.
func (w *Ways) Dial(ctx context.Context, to Target) (net.Conn, error) {
	ways := w.list(to)
	if len(ways) == 1 {
		return ways[0].try(ctx, to) // W1
	}
	first := ways[0].Name
	ways = w.inOrder(to, ways)
	conn, by, err := race(ctx, ways, to)
	if err != nil {
		w.note(to, "")
		return nil, err
	}
	if by == first {
		by = ""
	}
	w.note(to, by)
	return conn, nil
}

// inOrder puts the way first that was found for a target.
func (w *Ways) inOrder(to Target, ways []Way) []Way {
	w.mu.Lock()
	found, ok := w.mu.found[place{to.Node, to.Kind}]
	w.mu.Unlock()
	if !ok || !time.Now().Before(found.until) {
		return ways
	}
	i := slices.IndexFunc(ways, func(way Way) bool { return way.Name == found.way })
	if i <= 0 {
		return ways
	}
	return slices.Concat(ways[i:i+1], ways[:i], ways[i+1:])
}

// note remembers which way has led to a target; empty: the first, or none. A way that is
// remembered is not so for longer because it is used (W3).
func (w *Ways) note(to Target, way string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, now := place{to.Node, to.Kind}, time.Now()
	if way == "" {
		delete(w.mu.found, at)
		return
	}
	if old, ok := w.mu.found[at]; ok && old.way == way && now.Before(old.until) {
		return
	}
	if len(w.mu.found) >= w.mu.sweep {
		for other, f := range w.mu.found {
			if !now.Before(f.until) {
				delete(w.mu.found, other)
			}
		}
		w.mu.sweep = max(leastSweep, 2*len(w.mu.found))
	}
	w.mu.found[at] = find{way, now.Add(remembered)}
}

// outcome is how one try has ended.
type outcome struct {
	number int // of the way
	conn   net.Conn
	err    error
}

// race tries ways, each when the one before it has failed or has had its head start, until
// one has led to the target. It returns the connection and the way's name, and when all
// other tries have ended (W2).
func race(ctx context.Context, ways []Way, to Target) (_ net.Conn, by string, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	outcomes := make(chan outcome, len(ways)) // no try waits for a race that is over
	var tries sync.WaitGroup
	defer func() {
		cancel()
		tries.Wait()
		close(outcomes)
		for late := range outcomes {
			if late.err == nil {
				_ = late.conn.Close() // nobody has used it
			}
		}
	}()
	head := time.NewTimer(headStart)
	defer head.Stop()
	begun, ended := 0, 0
	begin := func() {
		number := begun
		begun++
		tries.Go(func() {
			conn, err := ways[number].try(ctx, to)
			outcomes <- outcome{number, conn, err}
		})
		head.Reset(headStart)
	}
	errs := make([]error, len(ways))
	for begin(); ended < begun; {
		select {
		case o := <-outcomes:
			if ended++; o.err == nil {
				return o.conn, ways[o.number].Name, nil
			}
			errs[o.number] = fmt.Errorf("%s: %w", ways[o.number].Name, o.err)
		case <-head.C:
		}
		if begun < len(ways) && ctx.Err() == nil {
			begin()
		}
	}
	return nil, "", together(errs)
}

// together is one error of several, in one line.
func together(errs []error) (all error) {
	for _, err := range errs {
		switch {
		case err == nil:
		case all == nil:
			all = err
		default:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}
