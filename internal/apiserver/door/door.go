package door

import (
	"container/list"
	"context"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Keeper lets connections in. Its methods may be called concurrently.
type Keeper struct {
	most int // connections, those of the system not counted
	log  *slog.Logger

	mu struct {
		sync.Mutex
		counted   int
		conns     map[string]*conn // all, by the address and port of the far end
		holders   map[netip.Prefix]*holder
		strangers list.List // of *conn: those on which nobody is known, the oldest first
		told      time.Time // when a connection that had to go was last logged
	}
}

// holder is an address and the connections that count as its own.
type holder struct {
	strangers list.List // of *conn, the oldest first
	known     map[*conn]struct{}
}

func (h *holder) count() int { return h.strangers.Len() + len(h.known) }

// conn is one connection.
type conn struct {
	net.Conn
	keeper  *Keeper
	from    netip.Prefix
	settled atomic.Bool // somebody is known on it, or it has gone

	// The keeper's lock guards these.
	gone       bool
	own, among *list.Element // of a stranger: in its holder's list, and in the keeper's
}

// New returns a keeper that lets in so many connections.
func New(most int, log *slog.Logger) *Keeper {
	d := &Keeper{most: most, log: log}
	d.mu.conns, d.mu.holders = map[string]*conn{}, map[netip.Prefix]*holder{}
	return d
}

const (
	// connBytes is the memory of the process for which one connection is let in.
	connBytes = 512 << 10
	fewest    = 128
	most      = 100_000
	// strangersShare is the part of an address's connections that are left to
	// strangers for the time until they are known, whoever has filled it with others.
	strangersShare = 4
)

// Room is how many connections the limits of the process have room for: of its
// memory, and of its files, of which they may be half.
func Room() int {
	n := int64(most)
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		n = min(n, limit/connBytes)
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil && files.Cur < math.MaxInt64 {
		n = min(n, int64(files.Cur)/2)
	}
	return int(max(n, fewest))
}

// Listener returns l with the keeper before it.
func (d *Keeper) Listener(l net.Listener) net.Listener { return listener{l, d} }

type listener struct {
	net.Listener
	d *Keeper
}

// Accept waits for the next connection.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.d.enter(c), nil
}

type key struct{}

// Context is ctx with what [Known] needs of a connection, for http.Server.ConnContext.
func (d *Keeper) Context(ctx context.Context, c net.Conn) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if in := d.mu.conns[c.RemoteAddr().String()]; in != nil {
		return context.WithValue(ctx, key{}, in)
	}
	return ctx
}

// Known says that somebody is known on the connection of a request; system is
// asked the first time whether that is the system.
func Known(ctx context.Context, system func() bool) {
	c, ok := ctx.Value(key{}).(*conn)
	if ok && !c.settled.Load() {
		c.keeper.settle(c, system())
	}
}

// addressOf is who a connection comes from: an IPv4 address, or an IPv6 network,
// whose addresses one machine can have all of.
func addressOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

func (d *Keeper) enter(from net.Conn) net.Conn {
	c := &conn{Conn: from, keeper: d, from: addressOf(from.RemoteAddr())}
	d.mu.Lock()
	h := d.mu.holders[c.from]
	if h == nil {
		h = &holder{known: map[*conn]struct{}{}}
	}
	var victim *conn
	if h.count() >= d.most-d.mu.counted {
		victim = d.victimLocked(h)
	}
	if victim != nil {
		d.leaveLocked(victim)
	}
	tell := victim != nil && time.Since(d.mu.told) > time.Minute
	if tell {
		d.mu.told = time.Now()
	}
	d.mu.holders[c.from] = h // which the victim may have been the last of
	d.mu.conns[from.RemoteAddr().String()] = c
	c.own, c.among = h.strangers.PushBack(c), d.mu.strangers.PushBack(c)
	d.mu.counted++
	d.mu.Unlock()
	if tell {
		d.log.Warn("too many connections: one is closed for each that comes", "address", victim.from, "most", d.most)
	}
	if victim != nil {
		_ = victim.Conn.Close() // whoever uses it is told
	}
	return c
}

// victimLocked is the connection that has to go for one more of h: one of h's, or
// if it has none, of anybody's.
func (d *Keeper) victimLocked(h *holder) *conn {
	if h.count() > 0 {
		if h.strangers.Len()*strangersShare >= h.count() {
			return h.strangers.Front().Value.(*conn)
		}
		return anyOf(h.known)
	}
	if d.mu.strangers.Len()*strangersShare >= d.mu.counted {
		return d.mu.strangers.Front().Value.(*conn)
	}
	for _, other := range d.mu.holders {
		if len(other.known) > 0 {
			return anyOf(other.known)
		}
	}
	return nil
}

func anyOf(list map[*conn]struct{}) *conn {
	for c := range list {
		return c
	}
	return nil
}

// settle notes that somebody is known on a connection.
func (d *Keeper) settle(c *conn, system bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.settled.Swap(true) {
		return
	}
	h := d.mu.holders[c.from]
	d.knowLocked(c, h)
	if !system {
		h.known[c] = struct{}{}
		return
	}
	d.mu.counted--
	d.forgetLocked(c.from, h)
}

// knowLocked takes a connection from the strangers.
func (d *Keeper) knowLocked(c *conn, h *holder) {
	h.strangers.Remove(c.own)
	d.mu.strangers.Remove(c.among)
	c.own, c.among = nil, nil
}

func (d *Keeper) forgetLocked(from netip.Prefix, h *holder) {
	if h.count() == 0 {
		delete(d.mu.holders, from)
	}
}

// leaveLocked gives a connection's place back.
func (d *Keeper) leaveLocked(c *conn) {
	if c.gone {
		return
	}
	c.gone = true
	c.settled.Store(true)
	if name := c.RemoteAddr().String(); d.mu.conns[name] == c {
		delete(d.mu.conns, name)
	}
	h := d.mu.holders[c.from]
	if h == nil {
		return // the system's
	}
	_, known := h.known[c]
	switch {
	case c.own != nil:
		d.knowLocked(c, h)
	case known:
		delete(h.known, c)
	default:
		return // the system's, at an address of others
	}
	d.mu.counted--
	d.forgetLocked(c.from, h)
}

// Close closes the connection and gives its place back.
func (c *conn) Close() error {
	c.keeper.mu.Lock()
	c.keeper.leaveLocked(c)
	c.keeper.mu.Unlock()
	return c.Conn.Close()
}
