package userspace

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

	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/carry"
	"github.com/kemudi/kemudi/internal/task"
)

// patience is how long endpoints are waited for, one after the other.
var patience = []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// Options say how connections are made. All fields are required.
type Options struct {
	Listen func(ctx context.Context, network, addr string) (net.Listener, error)
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	Log    *slog.Logger
}

// Key names a port of TCP of a Service.
type Key struct {
	types.NamespacedName
	Port string // its name
}

// Target is where connections of one family go.
type Target struct {
	Endpoints []netip.AddrPort
	// Affinity is for how long a client keeps its endpoint after its last connection; 0: it has the next one.
	Affinity time.Duration
}

// Relays are the ports that are open.
type Relays struct {
	o Options

	mu struct {
		sync.Mutex
		ports map[Key]*port
	}
}

// port is one that is open.
type port struct {
	r      *Relays
	key    Key
	number uint16
	l      net.Listener

	mu struct {
		sync.Mutex
		targets [2]Target // of IPv4 and IPv6
		next    [2]int
		known   map[netip.Addr]choice // clients with affinity
		swept   int                   // how many were known after the last sweep
	}
}

// choice is the endpoint of a client.
type choice struct {
	to   netip.AddrPort
	last time.Time
}

// New returns relays without ports.
func New(o Options) *Relays {
	r := &Relays{o: o}
	r.mu.ports = map[Key]*port{}
	return r
}

// Open returns at which port of the machine connections for a port are taken, and opens one at the address if there is none. It is
// served until g ends or the port is closed.
func (r *Relays) Open(g *task.Group, k Key, address string) (uint16, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.mu.ports[k]; p != nil {
		return p.number, nil
	}
	l, err := r.o.Listen(g.Context(), "tcp", address)
	if err != nil {
		return 0, fmt.Errorf("open a port for %s:%s: %w", k.NamespacedName, k.Port, err)
	}
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return 0, errors.Join(fmt.Errorf("open a port for %s:%s: %w", k.NamespacedName, k.Port, err), l.Close())
	}
	p := &port{r: r, key: k, number: at.Port(), l: l}
	p.mu.known = map[netip.Addr]choice{}
	r.mu.ports[k] = p
	g.Go("relay", func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { l.Close() })
		defer stop()
		p.accept(ctx, g)
		return nil
	})
	return p.number, nil
}

// Len is how many ports are open.
func (r *Relays) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.ports)
}

// Lead sets where connections to a port that is open go, of the clients of a family.
func (r *Relays) Lead(k Key, ipv6 bool, t Target) {
	r.mu.Lock()
	p := r.mu.ports[k]
	r.mu.Unlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.targets[familyOf(ipv6)] = t // U2
}

// Keep closes the ports of a Service that are not named. Connections go on.
func (r *Relays) Keep(service types.NamespacedName, names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, p := range r.mu.ports {
		if k.NamespacedName == service && !slices.Contains(names, k.Port) {
			delete(r.mu.ports, k)
			_ = p.l.Close() // who accepts hears of it
		}
	}
}

func familyOf(ipv6 bool) int {
	if ipv6 {
		return 1
	}
	return 0
}

// accept takes connections until the port is closed.
func (p *port) accept(ctx context.Context, g *task.Group) {
	wait := task.Backoff{Initial: 5 * time.Millisecond, Max: time.Second}
	for {
		c, err := p.l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil || task.Sleep(ctx, wait.Next()) != nil {
				return
			}
			continue
		}
		wait.Reset()
		g.Go("connection", func(ctx context.Context) error {
			p.carry(ctx, c)
			return nil
		})
	}
}

// carry connects a client with an endpoint until both have said all.
func (p *port) carry(ctx context.Context, c net.Conn) {
	defer c.Close()
	to, err := p.connect(ctx, c.RemoteAddr())
	if err != nil {
		p.r.o.Log.Debug("no endpoint of a service answers", "service", p.key.NamespacedName, "port", p.key.Port, "err", err)
		return
	}
	defer to.Close()
	stop := context.AfterFunc(ctx, func() {
		c.Close()
		to.Close()
	})
	defer stop()
	g := task.NewGroup(ctx)
	for _, way := range [][2]net.Conn{{to, c}, {c, to}} {
		g.Go("way", func(context.Context) error {
			_, err := carry.Way(way[0], way[1])
			return err
		})
	}
	_ = g.Wait() // whose end is broken is told by its closing
}

// errNobody says that there is no endpoint.
var errNobody = errors.New("there is no endpoint")

// connect connects to an endpoint for a client; to the next one if that does not answer (U1).
func (p *port) connect(ctx context.Context, from net.Addr) (net.Conn, error) {
	client := netip.Addr{}
	if at, err := netip.ParseAddrPort(from.String()); err == nil {
		client = at.Addr().Unmap()
	}
	last := errNobody
	for n, limit := range patience {
		to, ok := p.choose(client, n > 0)
		if !ok {
			break
		}
		bounded, cancel := context.WithTimeout(ctx, limit)
		c, err := p.r.o.Dial(bounded, "tcp", to.String())
		cancel()
		if err == nil {
			return c, nil
		}
		if last = err; ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

// choose is the endpoint for a client: with affinity the one that it had, unless it is to be another, else the next.
func (p *port) choose(client netip.Addr, another bool) (to netip.AddrPort, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := familyOf(client.Is6())
	t := &p.mu.targets[f]
	if len(t.Endpoints) == 0 {
		return to, false
	}
	now := time.Now()
	if had, known := p.mu.known[client]; t.Affinity > 0 && known && !another && now.Sub(had.last) < t.Affinity && slices.Contains(t.Endpoints, had.to) {
		p.mu.known[client] = choice{had.to, now}
		return had.to, true
	}
	p.mu.next[f] %= len(t.Endpoints)
	to = t.Endpoints[p.mu.next[f]]
	p.mu.next[f]++
	if t.Affinity > 0 {
		p.sweepLocked(now)
		p.mu.known[client] = choice{to, now}
	}
	return to, true
}

// sweepLocked forgets clients whose time is over, when there are twice as many as after the last time.
func (p *port) sweepLocked(now time.Time) {
	const few = 1024
	if len(p.mu.known) < max(few, 2*p.mu.swept) {
		return
	}
	for client, had := range p.mu.known {
		if t := &p.mu.targets[familyOf(client.Is6())]; now.Sub(had.last) >= t.Affinity {
			delete(p.mu.known, client)
		}
	}
	p.mu.swept = len(p.mu.known)
}
