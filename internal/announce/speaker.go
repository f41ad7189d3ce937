package announce

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// Options configure a [Speaker].
type Options struct {
	Node    string // this one's name; required
	Cluster string // what all machines of the cluster have alike, and others have not; required
	// Report is told when this machine takes an address, and when somebody outside of the cluster has it;
	// nil: nobody is.
	Report func(Report)
	Log    *slog.Logger // required
}

// A Report is news of an address.
type Report struct {
	Addr    netip.Addr
	Link    string
	Foreign string // hardware address of who has it outside of the cluster; empty: this machine has taken it
}

// A Speaker holds addresses on behalf of this machine, as those that are named for them agree.
type Speaker struct {
	o    Options
	wake chan struct{} // holds one token
	open func(addr netip.Addr) (*wire, error)

	mu struct {
		sync.Mutex
		wants []Want
	}
}

// NewSpeaker returns a Speaker of no addresses.
func NewSpeaker(o Options) *Speaker {
	return &Speaker{o: o, wake: make(chan struct{}, 1), open: openWire}
}

// Set sets which addresses there are, those that name other nodes alone left out or not. It does
// not wait.
func (s *Speaker) Set(wants []Want) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.wants = slices.Clone(wants)
	select {
	case s.wake <- struct{}{}:
	default: // there is a token already
	}
}

// heard is a message, or the end of a wire.
type heard struct {
	on  *wire
	m   message
	err error
}

func heardOn(w *wire, m message) heard { return heard{on: w, m: m} }

func brokenOn(w *wire, err error) heard { return heard{on: w, err: err} }

// reopenEvery is how often a link that cannot be used is tried again.
const reopenEvery = 2 * time.Second

// Run holds the addresses until ctx ends. It says so when it lets go.
func (s *Speaker) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	r := &round{s: s, g: g, claims: map[netip.Addr]*claim{}, at: map[netip.Addr]*wire{}, heard: make(chan heard)}
	g.Go("addresses", r.run)
	return g.Wait()
}

// round is one run of a Speaker. It belongs to one goroutine.
type round struct {
	s      *Speaker
	g      *task.Group
	claims map[netip.Addr]*claim
	at     map[netip.Addr]*wire
	wires  []*wire
	heard  chan heard // unbuffered: who listens waits
	wants  []Want
	reopen time.Time // when addresses without a wire are tried again; zero: there are none
}

func (r *round) run(ctx context.Context) error {
	defer r.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.s.wake:
			r.s.mu.Lock()
			r.wants = r.s.mu.wants
			r.s.mu.Unlock()
			r.take()
		case h := <-r.heard:
			r.hear(h)
		case <-timer.C:
		}
		if next := r.tick(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// take brings the claims to what is wanted.
func (r *round) take() {
	now, wanted := time.Now(), map[netip.Addr]bool{}
	r.reopen = time.Time{}
	for i := range r.wants {
		w := &r.wants[i]
		wanted[w.Addr] = true
		c := r.claims[w.Addr]
		if c == nil && !slices.Contains(w.Nodes, r.s.o.Node) {
			continue
		}
		if c == nil {
			wire, err := r.wire(w.Addr)
			if err != nil {
				r.s.o.Log.Error("announce an address of a balancer: it is tried again", "address", w.Addr.String(), "err", err)
				r.reopen = now.Add(reopenEvery)
				continue
			}
			c = newClaim(w.Addr, wire.out.own, clusterOf(r.s.o.Cluster), nodeOf(r.s.o.Node))
			r.claims[w.Addr], r.at[w.Addr] = c, wire
		}
		c.name(w, now)
	}
	for addr, c := range r.claims {
		if !wanted[addr] {
			c.name(nil, now)
		}
	}
}

// wire is that of an address.
func (r *round) wire(addr netip.Addr) (*wire, error) {
	w, err := r.s.open(addr)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(r.wires, func(o *wire) bool { return o.index == w.index && o.six == w.six }); i >= 0 {
		if err := w.close(); err != nil {
			return nil, err
		}
		w = r.wires[i]
	} else {
		r.wires = append(r.wires, w)
		r.g.Go("listen to link "+w.link, func(ctx context.Context) error { return w.listen(ctx, r.heard) })
	}
	if err := w.add(addr); err != nil {
		err = errors.Join(err, w.drop(addr))
		if len(w.addrs) == 0 {
			r.end(w)
		}
		return nil, err
	}
	return w, nil
}

func (r *round) hear(h heard) {
	if h.err != nil {
		r.broken(h.on, h.err)
		return
	}
	c := r.claims[h.m.addr]
	if c == nil || r.at[h.m.addr] != h.on {
		return
	}
	before, rival := c.state, c.rival
	r.send(c, c.hear(&h.m, time.Now()))
	if c.state == foreign && before != foreign && c.rival != rival {
		r.report(c)
	}
}

func (r *round) send(c *claim, out []message) {
	w := r.at[c.addr]
	for i := range out {
		if err := w.out.send(&out[i]); err != nil {
			r.s.o.Log.Warn("announce an address of a balancer", "address", c.addr.String(), "link", w.link, "err", err)
			return
		}
	}
}

// report tells of a claim that this machine holds, or that nobody of the cluster may.
func (r *round) report(c *claim) {
	news := Report{Addr: c.addr, Link: r.at[c.addr].link}
	if c.state == foreign {
		news.Foreign = c.rival.String()
	}
	r.s.o.Log.Info("an address of a balancer has moved", "address", c.addr.String(), "link", news.Link, "foreign", news.Foreign)
	if r.s.o.Report != nil {
		r.s.o.Report(news)
	}
}

// tick does what the time has come for, and returns when it is next; zero: at no time.
func (r *round) tick() (next time.Time) {
	now := time.Now()
	if !r.reopen.IsZero() && !now.Before(r.reopen) {
		r.take()
	}
	next = r.reopen
	for addr, c := range r.claims {
		if c.over(now) {
			r.forget(addr)
			continue
		}
		before := c.state
		out, at := c.tick(now)
		r.send(c, out)
		if c.state == holding && before != holding {
			r.report(c)
		}
		if c.rank < 0 {
			at = earliest(at, c.began.Add(handOver))
		}
		next = earliest(next, at)
	}
	return next
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (r *round) forget(addr netip.Addr) {
	w := r.at[addr]
	delete(r.claims, addr)
	delete(r.at, addr)
	if err := w.drop(addr); err != nil {
		r.s.o.Log.Warn("let go of an address of a balancer", "address", addr.String(), "err", err)
	}
	if len(w.addrs) == 0 {
		r.end(w)
	}
}

func (r *round) end(w *wire) {
	r.wires = slices.DeleteFunc(r.wires, func(o *wire) bool { return o == w })
	if err := w.close(); err != nil {
		r.s.o.Log.Warn("let go of a link", "link", w.link, "err", err)
	}
}

// broken begins anew with a link that could not be listened to any more.
func (r *round) broken(w *wire, err error) {
	r.s.o.Log.Warn("a link with addresses of balancers cannot be used: it is tried again", "link", w.link, "err", err)
	if !slices.Contains(r.wires, w) {
		return
	}
	for addr, at := range r.at {
		if at == w {
			delete(r.claims, addr)
			delete(r.at, addr)
		}
	}
	r.end(w)
	r.reopen = time.Now().Add(reopenEvery)
}

// close lets go of everything, and tells who is next.
func (r *round) close() {
	for _, c := range r.claims {
		r.send(c, c.bye())
	}
	for _, w := range slices.Clone(r.wires) {
		r.end(w)
	}
}
