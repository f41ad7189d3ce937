package edge

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/task"
)

const (
	// talkIdle is how long neither end of a talk may say anything before it is over (E5).
	talkIdle = 60 * time.Second
	// mostTalks is how many there may be at one port; who comes then is not heard.
	mostTalks = 8192
	// mostDatagram is the largest datagram there is.
	mostDatagram = 64 << 10
)

// relay carries datagrams between the clients of a port of Gateways and endpoints. Who has sent one keeps the endpoint
// that it went to, as long as they talk.
type relay struct {
	e    *Edge
	port uint16
	lent sync.Pool // memory for datagrams

	mu struct {
		sync.Mutex
		talks map[speaker]*talk
	}
}

// speaker is a client, by its address and the one that it sends to.
type speaker struct {
	from netip.AddrPort
	to   string // as answers must be told to leave
}

// talk is what a client and an endpoint have with each other.
type talk struct {
	to   *net.UDPConn
	one  *endpoint
	of   string       // upstream of the endpoint
	s    *state       // in which the endpoint was seen last; of who receives alone
	last atomic.Int64 // when something was said, counted from the start of the edge
}

// run relays until ctx ends.
func (r *relay) run(ctx context.Context, c net.PacketConn) error {
	in, ok := c.(*net.UDPConn)
	if !ok {
		return errors.Join(fmt.Errorf("port %d: a %T is no port of UDP", r.port, c), c.Close())
	}
	r.mu.Lock()
	r.mu.talks = map[speaker]*talk{}
	r.mu.Unlock()
	g := task.NewGroup(ctx)
	stop := context.AfterFunc(ctx, func() { in.Close() })
	defer stop()
	err := tellWhere(in)
	if err == nil {
		r.receive(ctx, g, in)
	}
	in.Close() // it may be closed already
	g.Cancel(context.Canceled)
	return errors.Join(err, g.Wait())
}

// receive takes datagrams of clients until the port is closed.
func (r *relay) receive(ctx context.Context, g *task.Group, in *net.UDPConn) {
	data, control := make([]byte, mostDatagram), make([]byte, 256)
	wait := task.Backoff{Initial: 5 * time.Millisecond, Max: time.Second}
	for {
		n, m, _, from, err := in.ReadMsgUDPAddrPort(data, control)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil || task.Sleep(ctx, wait.Next()) != nil {
				return
			}
			continue
		}
		wait.Reset()
		who := speaker{from, string(leaveBy(control[:m]))}
		r.mu.Lock()
		t := r.mu.talks[who]
		many := len(r.mu.talks) >= mostTalks
		r.mu.Unlock()
		if t != nil && !t.goesOn(r.e.state.Load(), r.port) {
			t.to.Close() // which ends it
			t = nil
		}
		if t == nil {
			if many {
				r.e.metrics.refused.WithLabelValues("datagrams").Inc()
				continue
			}
			if t = r.begin(ctx); t == nil {
				continue
			}
			r.mu.Lock()
			r.mu.talks[who] = t
			r.mu.Unlock()
			g.Go("talk", func(ctx context.Context) error {
				r.answer(ctx, in, who, t)
				return nil
			})
		}
		t.last.Store(int64(time.Since(r.e.began)))
		if _, err := t.to.Write(data[:n]); err != nil && !errors.Is(err, net.ErrClosed) {
			t.one.missed(time.Since(r.e.began))
			t.to.Close()
		}
	}
}

// action is what is done with datagrams that come to the port; nil: nothing.
func (s *state) action(port uint16) *route.Action {
	d := s.udp[port]
	if d == nil {
		return nil
	}
	target := d.tables[0].Find("", "/", nil)
	if target == nil {
		return nil
	}
	return target.Action
}

// goesOn says that the endpoint may be sent to still.
func (t *talk) goesOn(s *state, port uint16) bool {
	if t.s == s {
		return true
	}
	do, p := s.action(port), s.pools[t.of]
	if do == nil || p == nil || !slices.Contains(p.endpoints, t.one) ||
		!slices.ContainsFunc(do.Backends, func(b route.Backend) bool { return b.Upstream == t.of && b.Weight > 0 }) {
		return false
	}
	t.s = s
	return true
}

// begin chooses an endpoint; nil: there is none.
func (r *relay) begin(ctx context.Context) *talk {
	s := r.e.state.Load()
	do := s.action(r.port)
	if do == nil {
		return nil
	}
	b := choose(do.Backends)
	if b == nil {
		return nil
	}
	one := s.pools[b.Upstream].pick(time.Since(r.e.began), "", nil)
	if one == nil {
		return nil
	}
	c, err := dial(ctx, "udp", one.address)
	if err != nil {
		one.missed(time.Since(r.e.began))
		return nil
	}
	return &talk{to: c.(*net.UDPConn), one: one, of: b.Upstream, s: s}
}

// answer carries what the endpoint says, until there is silence.
func (r *relay) answer(ctx context.Context, in *net.UDPConn, who speaker, t *talk) {
	stop := context.AfterFunc(ctx, func() { t.to.Close() })
	defer stop()
	defer func() {
		t.to.Close()
		r.mu.Lock()
		if r.mu.talks[who] == t {
			delete(r.mu.talks, who)
		}
		r.mu.Unlock()
	}()
	r.e.metrics.streams.Inc()
	defer r.e.metrics.streams.Dec()
	for {
		silent := time.Since(r.e.began) - time.Duration(t.last.Load())
		if silent >= talkIdle || t.to.SetReadDeadline(time.Now().Add(talkIdle-silent)) != nil {
			return
		}
		err := r.carry(in, who, t)
		var late net.Error
		switch {
		case err == nil:
			t.one.reached()
			t.last.Store(int64(time.Since(r.e.began)))
		case errors.Is(err, syscall.ECONNREFUSED):
			t.one.missed(time.Since(r.e.began)) // what the client says next goes to another
			return
		case errors.As(err, &late) && late.Timeout():
		default:
			return
		}
	}
}

// carry carries one datagram to the client.
func (r *relay) carry(in *net.UDPConn, who speaker, t *talk) error {
	raw, err := t.to.SyscallConn()
	if err != nil {
		return fmt.Errorf("receive a datagram: %w", err)
	}
	var bad error
	err = raw.Read(func(fd uintptr) bool {
		b, ok := r.lent.Get().(*[]byte) // to talks that have something to say: most have not
		if !ok {
			data := make([]byte, mostDatagram)
			b = &data
		}
		defer r.lent.Put(b)
		n, err := unix.Read(int(fd), *b)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return false
		}
		if bad = err; err == nil {
			_, _, _ = in.WriteMsgUDPAddrPort((*b)[:n], []byte(who.to), who.from) // one that is lost is one of many
		}
		return true
	})
	return errors.Join(err, bad)
}

// tellWhere has a port tell to which address a datagram was sent: the answer must come from there.
func tellWhere(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("open a port of UDP: %w", err)
	}
	var bad error
	err = raw.Control(func(fd uintptr) {
		if unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1) != nil { // it is of IPv4 alone
			bad = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
	})
	if err = errors.Join(err, bad); err != nil {
		return fmt.Errorf("have a port of UDP tell where datagrams were sent to: %w", err)
	}
	return nil
}

// leaveBy is what has an answer leave by the address that a datagram was sent to; nil: any.
func leaveBy(control []byte) []byte {
	list, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range list {
		switch {
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			var info unix.Inet6Pktinfo
			copy(info.Addr[:], m.Data)
			if netip.AddrFrom16(info.Addr).IsLinkLocalUnicast() { // there is one on each link
				info.Ifindex = binary.NativeEndian.Uint32(m.Data[len(info.Addr):])
			}
			return unix.PktInfo6(&info)
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			var info unix.Inet4Pktinfo
			copy(info.Spec_dst[:], m.Data[unix.SizeofInet4Pktinfo-len(info.Spec_dst):]) // its last part is what the datagram has
			return unix.PktInfo4(&info)
		}
	}
	return nil
}
