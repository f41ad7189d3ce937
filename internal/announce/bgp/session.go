package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	message "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/kemudi/kemudi/internal/announce/bfd"
	"github.com/kemudi/kemudi/internal/task"
)

const (
	dialTimeout  = 5 * time.Second
	openTimeout  = 10 * time.Second // for the greeting
	writeTimeout = 5 * time.Second
)

// dial connects to a peer.
func dial(ctx context.Context, p *Peer) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	if p.PasswordFile != "" {
		data, err := os.ReadFile(p.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("read its password: %w", err)
		}
		password := strings.TrimRight(string(data), "\r\n")
		if len(password) == 0 || len(password) > unix.TCP_MD5SIG_MAXKEYLEN {
			return nil, fmt.Errorf("the password in %s must have 1 to %d characters", p.PasswordFile, unix.TCP_MD5SIG_MAXKEYLEN)
		}
		d.Control = func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) { failed = sign(int(fd), p.Addr.Addr(), password) })
			return cmp.Or(err, failed)
		}
	}
	return d.DialContext(ctx, "tcp", p.Addr.String())
}

// sign has the kernel sign what goes to an address, and take only what is signed (RFC 2385).
func sign(fd int, to netip.Addr, password string) error {
	s := unix.TCPMD5Sig{Keylen: uint16(len(password))}
	copy(s.Key[:], password)
	at := s.Addr.Data[:] // behind the family: the port, and in IPv6 the label of the flow
	if to.Is4() {
		s.Addr.Family = unix.AF_INET
		copy(at[2:], to.AsSlice())
	} else {
		s.Addr.Family = unix.AF_INET6
		copy(at[6:], to.AsSlice())
	}
	if err := unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &s); err != nil {
		return fmt.Errorf("sign what it is sent with the password: %w", err)
	}
	return nil
}

// session is one connection to a peer. It belongs to one goroutine.
type session struct {
	peer  *peer
	conn  net.Conn
	terms terms
	told  map[netip.Addr]route // what the router has been told
	whole bool                 // and that this is all there is
}

// meet has a session with the peer until it ends, which err says, or ctx does.
func (p *peer) meet(ctx context.Context) error {
	conn, err := p.s.open(ctx, &p.Peer)
	if err != nil {
		return fmt.Errorf("connect: %w", plain(err))
	}
	s := &session{peer: p, conn: conn, told: map[netip.Addr]route{}}
	if err := s.greet(ctx); err != nil {
		return s.end(err)
	}
	p.up()
	g, watch := task.NewGroup(ctx), task.NewGroup(ctx)
	in := make(chan heard)
	g.Go("listen", func(ctx context.Context) error { return s.listen(ctx, in) })
	if p.BFD > 0 {
		watch.Go("bfd", func(ctx context.Context) error { return s.watch(ctx, in) })
	}
	err = s.talk(g.Context(), in)
	g.Cancel(context.Canceled)
	err = errors.Join(s.end(err), g.Wait())
	watch.Cancel(context.Canceled) // after that: some routers take a farewell by BFD for a failure, and forget what they are to keep
	return errors.Join(err, watch.Wait())
}

// watch ends the session when the router is dead, long before it has been silent for the hold time.
func (s *session) watch(ctx context.Context, in chan<- heard) error {
	local, ok := s.conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return nil
	}
	p := s.peer
	err := p.s.bfd.Watch(ctx, bfd.Neighbour{Local: local.AddrPort().Addr().Unmap(), Remote: p.Addr.Addr(), Interval: p.BFD, Multiplier: p.Missed})
	if errors.Is(err, bfd.ErrDead) {
		select {
		case in <- heard{err: ends(message.BGP_ERROR_CEASE, subBFDDown, "%w", err)}:
		case <-ctx.Done():
		}
		return nil
	}
	if err != nil {
		p.s.o.Log.Warn("a router is told of the addresses of balancers, and not watched", "peer", p.Addr.String(), "err", err)
	}
	return nil
}

// subBFDDown is why a session ends whose router is dead (RFC 9384).
const subBFDDown = 10

// end closes the connection, and tells the router why if that is worth it.
func (s *session) end(why error) error {
	if m := farewell(why); m != nil {
		if err := s.say(m); err != nil {
			why = fmt.Errorf("%w (which it could not be told: %w)", why, err)
		}
	}
	_ = s.conn.Close() // what is sent, is sent
	return why
}

func (s *session) say(all ...*message.BGPMessage) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return say(s.conn, all...)
}

// greet opens the session.
func (s *session) greet(ctx context.Context) error {
	if err := s.conn.SetDeadline(time.Now().Add(openTimeout)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })()
	p := s.peer
	m, err := openMessage(&p.Peer, routerID(p.s.o.Node, p.s.wanted().Own), !p.known)
	if err != nil {
		return fmt.Errorf("make a greeting: %w", err)
	}
	if err := say(s.conn, m); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	answer, err := read(s.conn)
	if err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	open, ok := answer.Body.(*message.BGPOpen)
	if !ok {
		return ends(message.BGP_ERROR_FSM_ERROR, 1, "it answers a greeting with a message of type %d", answer.Header.Type)
	}
	if s.terms, err = agree(&p.Peer, open); err != nil {
		return err
	}
	if err := say(s.conn, message.NewBGPKeepAliveMessage()); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	if answer, err = read(s.conn); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	if answer.Header.Type != message.BGP_MSG_KEEPALIVE {
		return ends(message.BGP_ERROR_FSM_ERROR, 2, "it answers a greeting with a message of type %d", answer.Header.Type)
	}
	return s.conn.SetDeadline(time.Time{})
}

// heard is a message, or the end of what is heard.
type heard struct {
	kind uint8
	err  error
}

// listen passes on what the router says.
func (s *session) listen(ctx context.Context, in chan<- heard) error {
	for {
		if hold := s.terms.hold; hold > 0 {
			_ = s.conn.SetReadDeadline(time.Now().Add(hold)) // if that fails, so does what follows
		}
		m, err := read(s.conn)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = ends(message.BGP_ERROR_HOLD_TIMER_EXPIRED, 0, "it has said nothing for %s", s.terms.hold)
		}
		select {
		case in <- heard{m.Header.Type, err}:
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return nil
		}
	}
}

// talk says what is to be announced, as it changes.
func (s *session) talk(ctx context.Context, in <-chan heard) error {
	var alive <-chan time.Time
	if s.terms.hold > 0 {
		t := time.NewTicker(s.terms.hold / 3)
		defer t.Stop()
		alive = t.C
	}
	for {
		if err := s.tell(); err != nil {
			return fmt.Errorf("tell of routes: %w", err)
		}
		select {
		case <-ctx.Done():
			if s.terms.keeps && !errors.Is(context.Cause(ctx), ErrNothing) {
				return errors.New("this process ends, and the router keeps what it was told")
			}
			return ends(message.BGP_ERROR_CEASE, message.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN, "this machine announces no more")
		case <-s.peer.wake:
		case <-alive:
			if err := s.say(message.NewBGPKeepAliveMessage()); err != nil {
				return fmt.Errorf("keep the session: %w", err)
			}
		case h := <-in:
			switch {
			case h.err != nil:
				return h.err
			case h.kind == message.BGP_MSG_ROUTE_REFRESH: // it asks for all of them again
				clear(s.told)
			}
		}
	}
}

// tell says what the router does not know yet.
func (s *session) tell() error {
	wanted, p := s.peer.s.wanted(), &s.peer.Peer
	leads, troubles := map[netip.Addr]route{}, map[string]bool{}
	for _, addr := range wanted.Addrs {
		hop := s.hop(addr, wanted.Own)
		switch {
		case !s.terms.families[familyOf(addr)]:
			troubles[fmt.Sprintf("it takes no routes of %s", word(addr))] = true
		case !hop.IsValid():
			troubles[fmt.Sprintf("this node has no address of %s to which they could lead", word(addr))] = true
		default:
			within, _ := p.says(addr)
			leads[addr] = route{addr.Is4(), hop, within}
		}
	}
	s.peer.trouble(strings.Join(slices.Sorted(maps.Keys(troubles)), "; "))
	groups := map[route][]netip.Addr{}
	for addr, r := range leads {
		if s.told[addr] != r {
			groups[r] = append(groups[r], addr)
		}
	}
	for addr := range s.told {
		if _, still := leads[addr]; !still {
			groups[route{four: addr.Is4()}] = append(groups[route{four: addr.Is4()}], addr)
		}
	}
	for r, addrs := range groups {
		slices.SortFunc(addrs, netip.Addr.Compare)
		all, err := updates(p, &s.terms, addrs, r)
		if err != nil {
			return err
		}
		if err := s.say(all...); err != nil {
			return err
		}
	}
	s.told = leads
	return s.tellWhole(&wanted)
}

// tellWhole says once that the router has been told of all routes: it forgets then those of before that it kept and was
// not told of again. While more are to come it is not said.
func (s *session) tellWhole(wanted *Routes) error {
	if s.whole || !s.terms.keeps || wanted.More {
		return nil
	}
	s.whole = true
	for _, family := range []message.Family{message.RF_IPv4_UC, message.RF_IPv6_UC} {
		if s.terms.families[family] {
			if err := s.say(message.NewEndOfRib(family)); err != nil {
				return err
			}
		}
	}
	return nil
}

// route is what is said of addresses.
type route struct {
	four   bool       // their family
	hop    netip.Addr // where they lead; none: nowhere here
	within int        // whose Says they have: that of a Within of the peer, or, if it is less than 0, the peer's
}

func word(addr netip.Addr) string {
	if addr.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// hop is the address of this machine that routes lead to: that of the session, or, for the other family,
// the node's.
func (s *session) hop(to netip.Addr, own []netip.Addr) netip.Addr {
	if at, ok := s.conn.LocalAddr().(*net.TCPAddr); ok {
		if addr := at.AddrPort().Addr().Unmap(); addr.Is4() == to.Is4() && !addr.IsLinkLocalUnicast() {
			return addr
		}
	}
	if i := slices.IndexFunc(own, func(a netip.Addr) bool { return a.Is4() == to.Is4() }); i >= 0 {
		return own[i]
	}
	return netip.Addr{}
}
