package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/scavenge"
	"github.com/kemudi/kemudi/internal/task"
)

// Options say what an edge works with.
type Options struct {
	// Control is where orders come from. Required; the edge closes it.
	Control net.Listener
	// Version is told to who gives the orders.
	Version string
	// Log defaults to no log.
	Log *slog.Logger
	// AccessLog is the file in which connections to balancers are logged that are to be; empty: Log.
	AccessLog string
	// GivesBack has the process give back its memory while it has little to do: it does nothing else than this edge.
	GivesBack bool
	// Listen opens ports. Default: this machine's.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
	// ListenPacket opens ports of UDP. Default: this machine's.
	ListenPacket func(ctx context.Context, network, address string) (net.PacketConn, error)
}

// Edge takes requests to pods.
type Edge struct {
	o        Options
	began    time.Time
	registry *prometheus.Registry
	metrics  *metrics
	state    atomic.Pointer[state]
	feeder   atomic.Pointer[Control] // nil: nobody feeds it now
	ports    *ports
	forward  forward
	own      ownCertificate
	known    *known // passwords
	copies   chan copied
	access   *slog.Logger
	journal  *journal
	errors   *log.Logger // of package http
	pace     pace

	changing sync.Mutex // held while a new state is made
}

// state is all that a request is decided by (E1). It is read-only.
type state struct {
	table  *route.Table
	pools  map[string]*pool              // by upstream
	certs  map[string]*tls.Certificate   // by key
	usage  map[string]*usage             // of sites with limits, by key
	proofs map[*route.Proof]*authorities // by which clients are known
	doors  map[string]*door              // of Gateways, by key
	ports  map[uint16]*door              // those of TCP by their ports
	udp    map[uint16]*door              // those of UDP likewise

	trusts     map[string]bool   // ways of knowing upstreams that doors use, by trustKey
	siteTrusts map[string]string // those that sites use, by the site's key
	ways       sync.Map          // of a way: the transport of endpoints that are known so
}

// New returns an edge that does nothing before Run.
func New(o Options) *Edge {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Listen == nil {
		o.Listen = (&net.ListenConfig{}).Listen
	}
	if o.ListenPacket == nil {
		o.ListenPacket = (&net.ListenConfig{}).ListenPacket
	}
	e := &Edge{o: o, began: time.Now(), registry: prometheus.NewRegistry()}
	e.metrics = newMetrics(e.registry)
	e.forward = newForward()
	e.errors = slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug)
	e.known = newKnown()
	e.access, e.journal = accessLog(&e.o)
	e.copies = make(chan copied, mostCopies)
	e.ports = newPorts(e)
	e.state.Store(&state{})
	return e
}

// AccessLogEnv names the file of [Options.AccessLog].
const AccessLogEnv = "KEMUDI_EDGE_ACCESS_LOG"

// SocketEnv names the file descriptor of the socket on which an edge takes orders.
const SocketEnv = "KEMUDI_EDGE_FD"

// Inherited returns the socket that this process was given for orders.
func Inherited() (net.Listener, error) {
	text := os.Getenv(SocketEnv)
	fd, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("%s=%q is not a file descriptor: an edge is started by a node that needs one", SocketEnv, text)
	}
	file := os.NewFile(uintptr(fd), "orders")
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("take over the socket for orders: %w", err)
	}
	return l, nil
}

// drain is how long requests may go on when the process is to end.
const drain = 30 * time.Second

// Run serves until ctx ends or the edge is told to leave, and then until what it does is
// done, or [drain] is over.
func (e *Edge) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	g.Go("control socket", func(ctx context.Context) error { return e.obey(ctx, e.o.Control) })
	g.Go("ports", e.ports.run)
	g.Go("copies", e.sendCopies)
	if e.o.GivesBack {
		g.Go("memory", func(ctx context.Context) error {
			return scavenge.Run(ctx, scavenge.Options{OwnGarbage: true, Log: e.o.Log})
		})
	}
	err := g.Wait()
	e.forward.close()
	e.pace.close()
	err = errors.Join(err, e.journal.Close())
	if errors.Is(err, errLeave) {
		return nil
	}
	return err
}

// apply makes a change the state.
func (e *Edge) apply(c *route.Change) {
	if c.Empty() {
		return
	}
	e.changing.Lock()
	defer e.changing.Unlock()
	old := e.state.Load()
	now := &state{table: old.table.With(*c)}
	now.pools = e.poolsAfter(old, c)
	now.certs = e.certificatesAfter(old, c)
	now.usage = usageAfter(old, c)
	now.proofs = proofsAfter(old, c)
	e.doorsAfter(now, old, c)
	e.trustsAfter(now, old, c)
	e.state.Store(now)
	e.ports.wantDoors(now)
	e.metrics.sites.Set(float64(now.table.Len()))
	e.metrics.changes.Inc()
}
