package edge

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/task"
)

// What is asked of the balancers of Services alone is here: by which address a client came, what endpoints are told of
// it, and how long connections may last.

// met is a client as it came.
type met struct {
	conn net.Conn
	idle time.Duration  // for how long it may be silent; 0: as long as it likes
	at   netip.AddrPort // that it has connected to
}

// meet takes a connection that came by a door; nil: it came by an address that is not the balancer's, and so past the
// rules that say who may.
func meet(d *door, c net.Conn) *met {
	m := &met{conn: c}
	if d == nil || d.Relay == nil {
		return m
	}
	m.idle = time.Duration(d.Relay.Idle) * time.Millisecond
	m.at = askedFor(c)
	if len(d.Relay.Addresses) == 0 {
		return m
	}
	for _, a := range d.Relay.Addresses {
		if a == m.at.Addr() {
			return m
		}
	}
	return nil
}

// askedFor is the address that a client has connected to, before the kernel has led it here.
func askedFor(c net.Conn) netip.AddrPort {
	here, _ := netip.ParseAddrPort(c.LocalAddr().String())
	here = netip.AddrPortFrom(here.Addr().Unmap(), here.Port())
	t, ok := c.(*net.TCPConn)
	if !ok {
		return here
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return here
	}
	_ = raw.Control(func(fd uintptr) { // where it cannot be told, nothing was led elsewhere
		if here.Addr().Is4() {
			// The kernel answers with an address of IPv4, which is no larger than what this has room for.
			if a, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); err == nil {
				here = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a.Multiaddr[4:8])), uint16(a.Multiaddr[2])<<8|uint16(a.Multiaddr[3]))
			}
			return
		}
		if a, err := unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST); err == nil {
			port := a.Addr.Port // in the order of the network
			here = netip.AddrPortFrom(netip.AddrFrom16(a.Addr.Addr), port<<8|port>>8)
		}
	})
	return here
}

// announce tells an endpoint of the client by the PROXY protocol, if the relay wants that.
func (m *met) announce(r *route.Relay, to net.Conn) error {
	if r == nil || r.Header == 0 {
		return nil
	}
	h := proxyproto.HeaderProxyFromAddrs(byte(r.Header), m.conn.RemoteAddr(), net.TCPAddrFromAddrPort(m.at))
	if err := to.SetWriteDeadline(time.Now().Add(connectTimeout)); err != nil {
		return fmt.Errorf("tell %s of the client: %w", to.RemoteAddr(), err)
	}
	if _, err := h.WriteTo(to); err != nil {
		return fmt.Errorf("tell %s of the client: %w", to.RemoteAddr(), err)
	}
	return to.SetWriteDeadline(time.Time{})
}

// sticky is the token of the endpoint that a client has of the first backend's, by its address: it needs no memory, and
// of an endpoint that comes or goes few clients hear. Empty: any will do.
func (d *door) sticky(pools map[string]*pool, do *route.Action, client netip.Addr) string {
	if d.Relay == nil || !d.Relay.Sticky || do == nil || len(do.Backends) == 0 {
		return ""
	}
	p := pools[do.Backends[0].Upstream]
	if p == nil {
		return ""
	}
	token, best := "", uint64(0)
	who := client.As16()
	for _, one := range p.endpoints {
		h := fnv.New64a()
		_, _ = h.Write(who[:])
		_, _ = h.Write([]byte(one.token))
		if n := h.Sum64(); token == "" || n > best {
			token, best = one.token, n
		}
	}
	return token
}

// guarded is a connection of HTTP that is closed when it is silent for too long.
func (m *met) guarded(g *task.Group) net.Conn {
	if m.idle == 0 {
		return m.conn
	}
	over := make(chan struct{})
	l := &life{idle: m.idle, conns: []net.Conn{m.conn}, end: func() { _ = m.conn.Close() }} // who serves it hears of it
	g.Go("silence", func(ctx context.Context) error {
		l.watch(context.WithoutCancel(ctx), over)
		return nil
	})
	return &guarded{Conn: m.conn, over: over}
}

// guarded is a connection that somebody watches.
type guarded struct {
	net.Conn
	over chan struct{} // closed by Close
	once sync.Once
}

// Close closes the connection. It may be called more than once.
func (g *guarded) Close() error {
	g.once.Do(func() { close(g.over) })
	return g.Conn.Close()
}

// bound has a stream of a balancer end when it must. The caller calls stop when it has ended.
func (x *exchange) bound(ctx context.Context, m *met, to net.Conn) (stop func()) {
	r := x.door.Relay
	if r == nil || r.Idle == 0 && r.Drain == 0 {
		return func() {}
	}
	g, over := task.NewGroup(context.WithoutCancel(ctx)), make(chan struct{})
	l := x.lifeOf(x.took, func() { // who copies hears of it
		_ = m.conn.Close()
		_ = to.Close()
	})
	l.idle, l.conns = m.idle, []net.Conn{m.conn, to}
	g.Go("bounds", func(ctx context.Context) error {
		l.watch(ctx, over)
		return nil
	})
	return func() {
		close(over)
		_ = g.Wait() // who watches has no errors
	}
}

// lifeOf is how long what a balancer has with an endpoint may last after that has gone; end ends it.
func (x *exchange) lifeOf(one *endpoint, end func()) *life {
	return &life{
		drain: time.Duration(x.door.Relay.Drain) * time.Millisecond, one: one, end: end,
		now: func() *endpoint { return x.e.state.Load().pools[x.backend.Upstream].current(one.address) },
	}
}

// errDrained ends a request to an endpoint that has gone.
var errDrained = errors.New("the endpoint has gone, and its time is over")

// drains has requests end that endpoints which have gone take too long for. The caller calls stop when the request is over.
func (x *exchange) drains(r *http.Request) (stop func()) {
	if x.door.Relay == nil || x.door.Relay.Drain == 0 {
		return func() {}
	}
	g := task.NewGroup(r.Context())
	x.draining = g
	return func() {
		g.Cancel(context.Canceled)
		_ = g.Wait() // who watches has no errors
	}
}

// drainedWith has an attempt at an endpoint end when that has gone for too long.
func (x *exchange) drainedWith(ctx context.Context, one *endpoint, cancel context.CancelCauseFunc) {
	if x.draining == nil {
		return
	}
	l := x.lifeOf(one, func() { cancel(errDrained) })
	x.draining.Go("draining", func(whole context.Context) error {
		l.watch(whole, ctx.Done())
		return nil
	})
}

// life is how long a connection or request may last.
type life struct {
	idle  time.Duration    // 0: however silent it is
	conns []net.Conn       // that are silent together
	drain time.Duration    // after its endpoint has gone; 0: as it likes
	one   *endpoint        // of drain
	now   func() *endpoint // who has the endpoint's address; nil: nobody
	end   func()           // ends it
}

// watch ends it when its time has come, and returns then, when over is closed or ctx ends.
func (l *life) watch(ctx context.Context, over <-chan struct{}) {
	var silent, drained <-chan time.Time
	var gone <-chan struct{}
	if l.idle > 0 {
		silent = time.After(l.idle)
	}
	if l.drain > 0 {
		gone = l.one.gone
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-silent:
			left := l.idle - l.silence()
			if left <= 0 {
				l.end()
				return
			}
			silent = time.After(left)
		case <-gone:
			gone, drained = nil, time.After(l.drain)
		case <-drained:
			one := l.now()
			if one == nil {
				l.end()
				return
			}
			gone, drained = one.gone, nil // it has come back
		}
	}
}

// silence is since when none of the connections has carried anything. The kernel knows, whoever copies.
func (l *life) silence() time.Duration {
	least := l.idle
	for _, c := range l.conns {
		t, ok := c.(*net.TCPConn)
		if !ok {
			continue
		}
		raw, err := t.SyscallConn()
		if err != nil {
			continue
		}
		_ = raw.Control(func(fd uintptr) { // one that is closed has nothing to say
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				least = min(least, time.Duration(min(info.Last_data_recv, info.Last_data_sent))*time.Millisecond)
			}
		})
	}
	return least
}
