package bgp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	message "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/kemudi/kemudi/internal/announce/bfd"
	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/router"
	"github.com/kemudi/kemudi/test/wait"
)

// Autonomous systems of the tests' routers and nodes; that of nodes has more than two bytes.
const (
	routersAS = 64512
	nodesAS   = 4200000001
)

// within opens sockets in the network of a host.
type within struct{ host *nettest.Host }

func (w within) Listen(ctx context.Context, network string) (c *net.UDPConn, err error) {
	err = w.host.Do(func() (err error) {
		c, err = bfd.Network{}.Listen(ctx, network)
		return err
	})
	return c, err
}

func (w within) Dial(ctx context.Context, local, remote netip.Addr) (c net.Conn, err error) {
	err = w.host.Do(func() (err error) {
		c, err = bfd.Network{}.Dial(ctx, local, remote)
		return err
	})
	return c, err
}

// wire is a node and a router side by side, with addresses of both families.
type wire struct {
	*testing.T
	node, router *nettest.Host
}

func newWire(t *testing.T) *wire {
	t.Helper()
	w := &wire{T: t, node: nettest.New(t, "node"), router: nettest.New(t, "router")}
	nettest.Link(w.node, "eth0", w.router, "eth0")
	for i, h := range []*nettest.Host{w.node, w.router} {
		h.Addr("eth0", fmt.Sprintf("10.9.0.%d/24", i+1))
		h.Addr("eth0", fmt.Sprintf("fd09::%d/64", i+1))
	}
	return w
}

// start has a router that accepts the node.
func (w *wire) start(n router.Neighbour) *router.Router {
	w.Helper()
	r := router.Start(w.T, w.router, router.Options{AS: routersAS, ID: "10.9.0.2", Port: port, Listen: []string{"0.0.0.0", "::"}})
	r.Accept(n)
	return r
}

// speaking is a Speaker that runs.
type speaking struct {
	*Speaker
	reports chan Report
	end     func()
	endFor  func(why error)
}

// speak has the node tell a peer until end is called, or the test ends.
func (w *wire) speak(p Peer) *speaking {
	w.Helper()
	s := &speaking{reports: make(chan Report, 100)}
	s.Speaker = NewSpeaker(Options{Node: "node", Peers: []Peer{p}, Log: slog.New(slog.DiscardHandler), Report: func(r Report) { s.reports <- r }})
	s.bfd = bfd.NewSpeaker(within{w.node}, s.o.Log)
	s.open = func(ctx context.Context, p *Peer) (c net.Conn, err error) {
		err = w.node.Do(func() error {
			c, err = dial(ctx, p)
			return err
		})
		return c, err
	}
	g := task.NewGroup(w.Context())
	g.Go("speak", s.Run)
	var once sync.Once
	s.endFor = func(why error) {
		once.Do(func() {
			g.Cancel(why)
			if err := g.Wait(); err != nil && !errors.Is(err, why) {
				w.Error(err)
			}
		})
	}
	s.end = func() { s.endFor(context.Canceled) }
	w.Cleanup(s.end)
	return s
}

func peerAt(addr string) Peer {
	return Peer{Addr: netip.AddrPortFrom(netip.MustParseAddr(addr), port), AS: routersAS, OwnAS: nodesAS, Hold: leastHold}
}

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// wantRoutes waits until the router knows these routes and no others, written as "192.0.2.1/32 via 10.9.0.1".
func (w *wire) wantRoutes(r *router.Router, want ...string) {
	w.Helper()
	wait.Until(w, func() error {
		routes, err := r.Routes()
		if err != nil {
			return err
		}
		var got []string
		for to, hops := range routes {
			for _, hop := range hops {
				got = append(got, fmt.Sprintf("%s via %s", to, hop))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			return fmt.Errorf("the router has %d routes %.300q, want %d: %.300q", len(got), got, len(want), want)
		}
		return nil
	})
}

// wantReport waits for a report. A router that has just begun resets connections before it is ready for its
// neighbour, so that a session is not there at first.
func (w *wire) wantReport(s *speaking, kind Kind, text string) {
	w.Helper()
	for {
		select {
		case got := <-s.reports:
			if kind == Up && got.Kind == Down && strings.HasSuffix(got.Message, "connection reset by peer") {
				continue
			}
			if got.Kind != kind || !strings.Contains(got.Message, text) {
				w.Fatalf("got %+v, want kind %d with %q", got, kind, text)
			}
			return
		case <-w.Context().Done():
			return
		}
	}
}

func TestRoutersAreToldOfRoutesOfBothFamilies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ session, from string }{{"10.9.0.2", "10.9.0.1"}, {"fd09::2", "fd09::1"}} {
		t.Run(c.session, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.start(router.Neighbour{Addr: c.from, AS: nodesAS})
			s := w.speak(peerAt(c.session))
			own := addrs("10.9.0.1", "fd09::1")
			s.Set(Routes{Addrs: addrs("192.0.2.1", "2001:db8::1", "192.0.2.2"), Own: own})
			first := []string{"192.0.2.1/32 via 10.9.0.1", "192.0.2.2/32 via 10.9.0.1", "2001:db8::1/128 via fd09::1"}
			w.wantRoutes(r, first...)
			w.wantReport(s, Up, "")
			r.Refresh(c.from)
			w.wantRoutes(r, first...)
			s.Set(Routes{Addrs: addrs("2001:db8::2", "192.0.2.2"), Own: own})
			w.wantRoutes(r, "192.0.2.2/32 via 10.9.0.1", "2001:db8::2/128 via fd09::1")

			var many []netip.Addr // more than one message has room for
			var texts []string
			for i := range 3*perMessage + 1 {
				four, six := netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), netip.MustParseAddr(fmt.Sprintf("2001:db8:1::%x", i))
				many = append(many, four, six)
				texts = append(texts, four.String()+"/32 via 10.9.0.1", six.String()+"/128 via fd09::1")
			}
			s.Set(Routes{Addrs: many, Own: own})
			w.wantRoutes(r, texts...)
			s.Set(Routes{})
			w.wantRoutes(r)
			s.Set(Routes{Addrs: addrs("192.0.2.1"), Own: own})
			w.wantRoutes(r, first[0])
			s.end()
			w.wantRoutes(r)
		})
	}
}

// TestRoutersAreToldMoreOfRoutes has communities of all kinds and preferences, some for the addresses of one network alone.
func TestRoutersAreToldMoreOfRoutes(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	r := w.start(router.Neighbour{Addr: "10.9.0.1", AS: routersAS})
	peers, err := ParsePeers([]string{"peer=10.9.0.2,peer-as=64512,as=64512,community=no-export,community=64512:7,for=192.0.2.0/28,community=4200000001:1:2,community=64512:8,community=rt:64512:100000,community=soo:4200000001:7,local-preference=200," +
		"for=192.0.2.4/32,for=2001:db8::/64,local-preference=50"})
	if err != nil {
		t.Fatal(err)
	}
	s := w.speak(peers[0])
	s.Set(Routes{Addrs: addrs("192.0.2.1", "192.0.2.4", "198.51.100.1", "2001:db8::1"), Own: addrs("10.9.0.1", "fd09::1")})
	want := map[string]string{
		"192.0.2.1/32":    "preference 200, communities 64512:8, extended 2:64512:100000 3:64086.59905:7, large 4200000001:1:2",
		"192.0.2.4/32":    "preference 100",
		"198.51.100.1/32": "preference 100, communities no-export 64512:7",
		"2001:db8::1/128": "preference 50",
	}
	wait.Until(t, func() error {
		got, err := r.Said()
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("got %v, want %v", got, want)
		}
		return err
	})
}

// TestRouterThatIsDeadIsNoticedAtOnce takes the wire away, long before anybody is silent for the hold time.
func TestRouterThatIsDeadIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	r := w.start(router.Neighbour{Addr: "10.9.0.1", AS: nodesAS})
	p := peerAt("10.9.0.2")
	p.Hold, p.BFD, p.Missed = 90*time.Second, 100*time.Millisecond, 3
	routers := bfd.NewSpeaker(within{w.router}, slog.New(slog.DiscardHandler))
	g := task.NewGroup(t.Context())
	g.Go("router", routers.Run)
	noticed := make(chan error, 1)
	g.Go("node as the router sees it", func(ctx context.Context) error {
		noticed <- routers.Watch(ctx, bfd.Neighbour{Local: netip.MustParseAddr("10.9.0.2"), Remote: netip.MustParseAddr("10.9.0.1"), Interval: p.BFD, Multiplier: 3, Up: func() { noticed <- nil }})
		return nil
	})
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	s := w.speak(p)
	s.Set(Routes{Addrs: addrs("192.0.2.1"), Own: addrs("10.9.0.1")})
	w.wantRoutes(r, "192.0.2.1/32 via 10.9.0.1")
	w.wantReport(s, Up, "")
	<-noticed // both hear each other
	link, err := w.router.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.router.Netlink().LinkSetDown(link); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.wantReport(s, Down, "10.9.0.2:179: it is dead, or the way to it is (BFD)")
	if err := <-noticed; !errors.Is(err, bfd.ErrDead) {
		t.Errorf("the router: got %v, want that the node is dead", err)
	}
	if took := time.Since(began); took > 30*time.Second { // a third of a second, on a machine at rest
		t.Errorf("noticed after %s", took)
	} else {
		t.Logf("noticed after %s", took)
	}
}

func TestRoutersOfTheSameSystemAreToldToo(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	r := w.start(router.Neighbour{Addr: "10.9.0.1", AS: routersAS})
	p := peerAt("10.9.0.2")
	p.OwnAS = routersAS
	w.speak(p).Set(Routes{Addrs: addrs("192.0.2.1", "2001:db8::1"), Own: addrs("fd09::1")})
	w.wantRoutes(r, "192.0.2.1/32 via 10.9.0.1", "2001:db8::1/128 via fd09::1")
}

// TestRoutersThatComeBackAreToldAgain ends sessions from the router's side, in order and by its end.
func TestRoutersThatComeBackAreToldAgain(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	node := router.Neighbour{Addr: "10.9.0.1", AS: nodesAS}
	r := w.start(node)
	s := w.speak(peerAt("10.9.0.2"))
	s.Set(Routes{Addrs: addrs("192.0.2.1")})
	w.wantRoutes(r, "192.0.2.1/32 via 10.9.0.1")
	w.wantReport(s, Up, "")
	r.Forbid("10.9.0.1")
	w.wantReport(s, Down, "10.9.0.2:179: it has ended the session: code 6(cease) subcode 3(peer deconfigured)")
	r.Stop()
	s.Set(Routes{Addrs: addrs("192.0.2.3")})
	r = w.start(node)
	w.wantRoutes(r, "192.0.2.3/32 via 10.9.0.1")
	for got := range s.reports { // what it has met meanwhile
		if got.Kind == Up {
			break
		}
	}
}

func TestSaysWhyRoutersAreNotTold(t *testing.T) {
	t.Parallel()
	t.Run("no router", func(t *testing.T) {
		t.Parallel()
		w := newWire(t)
		w.wantReport(w.speak(peerAt("10.9.0.2")), Down, "10.9.0.2:179: connect: connect: connection refused")
	})
	t.Run("of another system", func(t *testing.T) {
		t.Parallel()
		w := newWire(t)
		w.start(router.Neighbour{Addr: "10.9.0.1", AS: nodesAS})
		p := peerAt("10.9.0.2")
		p.AS++
		w.wantReport(w.speak(p), Down, "it is of autonomous system 64512, not of 64513 (peer-as)")
	})
	t.Run("taken for another system", func(t *testing.T) {
		t.Parallel()
		w := newWire(t)
		w.start(router.Neighbour{Addr: "10.9.0.1", AS: nodesAS + 1})
		w.wantReport(w.speak(peerAt("10.9.0.2")), Down, "it has ended the session: code 2(open) subcode 2(bad peer as)")
	})
	t.Run("a family it does not take", func(t *testing.T) {
		t.Parallel()
		w := newWire(t)
		r := w.start(router.Neighbour{Addr: "10.9.0.1", AS: nodesAS, Only: router.IPv4()})
		s := w.speak(peerAt("10.9.0.2"))
		s.Set(Routes{Addrs: addrs("192.0.2.1", "2001:db8::1"), Own: addrs("fd09::1")})
		w.wantRoutes(r, "192.0.2.1/32 via 10.9.0.1")
		w.wantReport(s, Up, "")
		w.wantReport(s, Withheld, "10.9.0.2:179: it takes no routes of IPv6")
	})
	t.Run("a family the node has not", func(t *testing.T) {
		t.Parallel()
		w := newWire(t)
		w.start(router.Neighbour{Addr: "10.9.0.1", AS: nodesAS})
		s := w.speak(peerAt("10.9.0.2"))
		s.Set(Routes{Addrs: addrs("2001:db8::1"), Own: addrs("10.9.0.1")})
		w.wantReport(s, Up, "")
		w.wantReport(s, Withheld, "10.9.0.2:179: this node has no address of IPv6 to which they could lead")
	})
}

func TestPasswordsAreUsed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ session, from string }{{"10.9.0.2", "10.9.0.1"}, {"fd09::2", "fd09::1"}} {
		t.Run(c.session, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.start(router.Neighbour{Addr: c.from, AS: nodesAS, Password: "the word"})
			file := filepath.Join(t.TempDir(), "password")
			if err := os.WriteFile(file, []byte("another word\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			p := peerAt(c.session)
			p.PasswordFile = file
			s := w.speak(p)
			s.Set(Routes{Addrs: addrs("192.0.2.1"), Own: addrs("10.9.0.1")})
			w.wantReport(s, Down, "connect: i/o timeout")
			if err := os.WriteFile(file, []byte("the word\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			w.wantRoutes(r, "192.0.2.1/32 via 10.9.0.1")
		})
	}
}

// TestRouterThatFallsSilentIsGivenUp has a router that greets, and then says nothing more.
func TestRouterThatFallsSilentIsGivenUp(t *testing.T) {
	t.Parallel()
	p := peerAt("10.9.0.2")
	told := make(chan string, 10)
	s := NewSpeaker(Options{Node: "node", Peers: []Peer{p}, Log: slog.New(slog.DiscardHandler), Report: func(r Report) { told <- r.Message }})
	kinds := make(chan uint8, 100)
	s.open = func(context.Context, *Peer) (net.Conn, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return nil, err
		}
		other, err := l.Accept()
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { other.Close() })
		o := p
		o.OwnAS = routersAS
		open, err := openMessage(&o, netip.MustParseAddr("10.9.0.2"), false)
		if err != nil {
			return nil, err
		}
		if err := say(other, open, message.NewBGPKeepAliveMessage()); err != nil {
			return nil, err
		}
		go func() {
			for {
				m, err := read(other)
				if kinds <- m.Header.Type; err != nil {
					return
				}
			}
		}()
		return c, nil
	}
	g := task.NewGroup(t.Context())
	g.Go("speak", s.Run)
	<-told // it is up
	if got, want := <-told, "10.9.0.2:179: it has said nothing for 3s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	seen := map[uint8]int{}
	for kind := range kinds {
		if seen[kind]++; kind == message.BGP_MSG_NOTIFICATION {
			break
		}
	}
	if seen[message.BGP_MSG_KEEPALIVE] < 2 {
		t.Errorf("the router has heard %v of each kind, want that the node lives", maps.Collect(maps.All(seen)))
	}
}

// FuzzReadsWhatRoutersSay has no words of a router break a node.
func FuzzReadsWhatRoutersSay(f *testing.F) {
	p := peerAt("10.9.0.2")
	open, err := openMessage(&p, netip.MustParseAddr("10.9.0.2"), true)
	if err != nil {
		f.Fatal(err)
	}
	for _, m := range []*message.BGPMessage{open, message.NewBGPKeepAliveMessage(), message.NewBGPNotificationMessage(6, 2, nil)} {
		data, err := m.Serialize()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Fuzz(func(t *testing.T, text string) {
		from := strings.NewReader(text)
		for {
			m, err := read(from)
			if err != nil {
				break
			}
			if open, ok := m.Body.(*message.BGPOpen); ok {
				if got, err := agree(&p, open); err == nil && (got.hold < 0 || got.hold > 0 && got.hold < leastHold) {
					t.Errorf("agreed on a hold time of %s", got.hold)
				}
			}
		}
		if n, err := io.Copy(io.Discard, from); err != nil || n > int64(len(text)) {
			t.Errorf("%d bytes are left, %v", n, err)
		}
	})
}
