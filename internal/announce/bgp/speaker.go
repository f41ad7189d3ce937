package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/announce/bfd"
	"github.com/kemudi/kemudi/internal/task"
)

// Options configure a [Speaker].
type Options struct {
	Node  string // this one's name; required
	Peers []Peer // required
	// Report is told what becomes of the sessions; it may be called concurrently.
	Report func(Report)
	Log    *slog.Logger // required
}

// A Report is news of a peer.
type Report struct {
	Peer    netip.AddrPort
	Kind    Kind
	Message string // of Down and Withheld: why
}

// A Kind of news.
type Kind int

const (
	Up       Kind = iota // the peer is told
	Down                 // there is no session with it
	Withheld             // it is not told of all routes
)

// Routes are what is to be announced.
type Routes struct {
	Addrs []netip.Addr // that lead to this machine
	Own   []netip.Addr // its own, of each family the best first
	// More says that some are to come as soon as this machine can lead them on: routers that keep what they were told before
	// forget nothing yet.
	More bool
}

// ErrNothing is why a Speaker ends, as the cause of its context, when nothing is announced any more: routers that keep routes for a
// process that is started anew are to forget them then.
var ErrNothing = errors.New("nothing is announced any more")

// A Speaker keeps peers told of the routes to this machine.
type Speaker struct {
	o     Options
	peers []*peer
	bfd   *bfd.Speaker
	open  func(ctx context.Context, p *Peer) (net.Conn, error)

	mu struct {
		sync.Mutex
		routes Routes
	}
}

// NewSpeaker returns a Speaker of no routes.
func NewSpeaker(o Options) *Speaker {
	s := &Speaker{o: o, open: dial, bfd: bfd.NewSpeaker(bfd.Network{}, o.Log)}
	for _, p := range o.Peers {
		s.peers = append(s.peers, &peer{Peer: p, s: s, wake: make(chan struct{}, 1)})
	}
	return s
}

// Set sets the routes, which nobody changes any more. It does not wait.
func (s *Speaker) Set(r Routes) {
	s.mu.Lock()
	same := slices.Equal(s.mu.routes.Addrs, r.Addrs) && slices.Equal(s.mu.routes.Own, r.Own) && s.mu.routes.More == r.More
	s.mu.routes = r
	s.mu.Unlock()
	if same {
		return
	}
	for _, p := range s.peers {
		select {
		case p.wake <- struct{}{}:
		default: // there is a token already
		}
	}
}

func (s *Speaker) wanted() Routes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.routes
}

// Run keeps the sessions until ctx ends. The peers have been told then that nothing leads here any more, but for those that
// keep routes for a while (Peer.Restart).
func (s *Speaker) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	if slices.ContainsFunc(s.peers, func(p *peer) bool { return p.BFD > 0 }) {
		g.Go("bfd", s.bfd.Run)
	}
	for _, p := range s.peers {
		g.Go("peer "+p.Addr.String(), p.run)
	}
	return g.Wait()
}

// peer is one of a Speaker. But for wake, it belongs to one goroutine.
type peer struct {
	Peer
	s    *Speaker
	wake chan struct{} // holds one token

	met      bool // since run has last looked
	known    bool // it has met this process
	problem  string
	withheld string
}

// Times between sessions that fail.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 15 * time.Second
)

func (p *peer) run(ctx context.Context) error {
	wait := task.Backoff{Initial: firstRetry, Max: lastRetry, Jitter: 0.5}
	for {
		p.met = false
		err := p.meet(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if p.met {
			wait.Reset()
		}
		if err != nil && (p.met || p.problem != err.Error()) {
			p.problem, p.withheld = err.Error(), ""
			p.s.o.Log.Warn("a router is not told of the addresses of balancers: it is tried again", "peer", p.Addr.String(), "err", err)
			p.s.o.Report(Report{Peer: p.Addr, Kind: Down, Message: fmt.Sprintf("%s: %v", p.Addr, err)})
		}
		if task.Sleep(ctx, wait.Next()) != nil {
			return nil
		}
	}
}

// up notes that a session begins.
func (p *peer) up() {
	p.met, p.known, p.problem, p.withheld = true, true, "", ""
	p.s.o.Log.Info("a router is told of the addresses of balancers", "peer", p.Addr.String())
	p.s.o.Report(Report{Peer: p.Addr, Kind: Up})
}

// trouble notes why some routes are not told of; empty: all are.
func (p *peer) trouble(why string) {
	if why == p.withheld {
		return
	}
	if p.withheld = why; why != "" {
		p.s.o.Report(Report{Peer: p.Addr, Kind: Withheld, Message: fmt.Sprintf("%s: %s", p.Addr, why)})
	}
}
