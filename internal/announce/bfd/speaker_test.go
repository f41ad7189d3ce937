package bfd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// within opens sockets in the network of a host.
type within struct{ host *nettest.Host }

func (w within) Listen(ctx context.Context, network string) (c *net.UDPConn, err error) {
	err = w.host.Do(func() (err error) {
		c, err = Network{}.Listen(ctx, network)
		return err
	})
	return c, err
}

func (w within) Dial(ctx context.Context, local, remote netip.Addr) (c net.Conn, err error) {
	err = w.host.Do(func() (err error) {
		c, err = Network{}.Dial(ctx, local, remote)
		return err
	})
	return c, err
}

// wire is two machines side by side, with addresses of both families.
type wire struct {
	*testing.T
	hosts [2]*nettest.Host
	ends  []*Speaker // of the first machines: the port of others is free
}

// newWire has that many of the two machines speak.
func newWire(t *testing.T, speaking int) *wire {
	t.Helper()
	w := &wire{T: t, hosts: [2]*nettest.Host{nettest.New(t, "a"), nettest.New(t, "b")}}
	nettest.Link(w.hosts[0], "eth0", w.hosts[1], "eth0")
	for i, h := range w.hosts {
		h.Addr("eth0", fmt.Sprintf("10.9.0.%d/24", i+1))
		h.Addr("eth0", fmt.Sprintf("fd09::%d/64", i+1))
	}
	g := task.NewGroup(t.Context())
	for _, h := range w.hosts[:speaking] {
		s := NewSpeaker(within{h}, slog.New(slog.DiscardHandler))
		w.ends = append(w.ends, s)
		g.Go("speaker", s.Run)
	}
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// watched is a neighbour that is watched.
type watched struct {
	up    chan struct{} // gets a token when both hear each other
	ended chan error
	end   func()
}

// watch has one machine watch the other at addresses that begin so.
func (w *wire) watch(from int, begin string) *watched {
	w.Helper()
	at := func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("%s%d", begin, i+1)) }
	one := &watched{up: make(chan struct{}, 10), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(w.Context())
	g := task.NewGroup(ctx)
	g.Go("watch", func(ctx context.Context) error {
		one.ended <- w.ends[from].Watch(ctx, Neighbour{Local: at(from), Remote: at(1 - from), Interval: 50 * time.Millisecond, Multiplier: 3, Up: func() { one.up <- struct{}{} }})
		return nil
	})
	one.end = func() {
		cancel()
		_ = g.Wait()
	}
	w.Cleanup(one.end)
	return one
}

func TestDeadNeighboursAreNoticed(t *testing.T) {
	t.Parallel()
	for _, begin := range []string{"10.9.0.", "fd09::"} {
		t.Run(begin, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, 2)
			a, b := w.watch(0, begin), w.watch(1, begin)
			<-a.up
			<-b.up
			link, err := w.hosts[1].Netlink().LinkByName("eth0")
			if err != nil {
				t.Fatal(err)
			}
			if err := w.hosts[1].Netlink().LinkSetDown(link); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for _, one := range []*watched{a, b} {
				if err := <-one.ended; !errors.Is(err, ErrDead) {
					t.Errorf("got %v, want %v", err, ErrDead)
				}
			}
			t.Logf("noticed after %s", time.Since(began))
		})
	}
}

// TestWhoTakesLeaveIsNotDead ends one end in order, and begins it again.
func TestWhoTakesLeaveIsNotDead(t *testing.T) {
	t.Parallel()
	w := newWire(t, 2)
	a, b := w.watch(0, "10.9.0."), w.watch(1, "10.9.0.")
	<-a.up
	<-b.up
	b.end()
	if err := <-b.ended; err != nil {
		t.Errorf("who leaves: got %v, want nil", err)
	}
	b = w.watch(1, "10.9.0.")
	<-b.up
	<-a.up // a second time
	select {
	case err := <-a.ended:
		t.Errorf("who stays: got %v, want it to go on", err)
	default:
	}
}

// TestNothingIsBelievedThatCameByARouter sends what would bring a session up, first with a hop lost (F1).
func TestNothingIsBelievedThatCameByARouter(t *testing.T) {
	t.Parallel()
	w := newWire(t, 1)
	a := w.watch(0, "10.9.0.")
	var c *net.UDPConn
	w.hosts[1].Must(func() (err error) {
		c, err = Network{}.Listen(t.Context(), "udp4")
		return err
	})
	defer c.Close()
	said, _, err := receive(c)
	if err != nil || said.state != down {
		t.Fatalf("got %+v, %v, want that it is down", said, err)
	}
	var from net.Conn
	w.hosts[1].Must(func() (err error) {
		from, err = Network{}.Dial(t.Context(), netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("10.9.0.1"))
		return err
	})
	defer from.Close()
	answer := packet{state: initial, multiplier: 3, mine: 7, yours: said.mine, send: time.Second, take: 50 * time.Millisecond}
	hop := func(ttl int) {
		raw, err := from.(*net.UDPConn).SyscallConn()
		if err == nil {
			err = control(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, ttl) })
		}
		if err == nil {
			_, err = from.Write(answer.encode())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	hop(254)
	answer.mine = 8
	hop(255)
	<-a.up
	wait.Until(t, func() error { // the first one was lost: it is the second that it answers
		said, _, err := receive(c)
		if err == nil && (said.state != up || said.yours != 8) {
			err = fmt.Errorf("got %+v, want it up with session 8", said)
		}
		return err
	})
}
