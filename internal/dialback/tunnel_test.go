package dialback

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// bed is a server with a registry, and an agent of node n1 whose network is told by
// the test: what it connects to is served by functions.
type bed struct {
	*testing.T
	registry *Registry
	network  *network
	answered chan int // codes of answers that are no tunnels
	server   *httptest.Server
	agent    *Agent
	end      func() // ends the agent
}

// site serves the connections to an address.
type site func(conn net.Conn)

func newBed(t *testing.T, sites map[string]site) *bed {
	t.Helper()
	b := &bed{T: t, network: newNetwork(t, sites), answered: make(chan int, 100)}
	var err error
	b.registry, err = NewRegistry(slog.New(slog.DiscardHandler))
	b.must(err)
	b.server = b.serve("127.0.0.1:0")
	roots := x509.NewCertPool()
	roots.AddCert(b.server.Certificate())
	b.agent, err = NewAgent(AgentOptions{
		NodeName: "n1", CA: roots, Certificate: func() (*tls.Certificate, error) { return &tls.Certificate{}, nil }, Dial: b.network.dial,
		Scope: Scope{NodeAgent: "192.0.2.1:10250", Pods: func() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")} }},
	})
	b.must(err)
	b.agent.SetServers([]string{b.server.URL})
	g := task.NewGroup(t.Context())
	g.Go("agent", b.agent.Run)
	b.end = sync.OnceFunc(func() {
		g.Cancel(context.Canceled)
		b.must(g.Wait())
	})
	t.Cleanup(func() {
		b.end()
		b.server.Close()
	})
	b.must(b.registry.Wait(t.Context(), "n1"))
	return b
}

// coded tells the codes of answers.
type coded struct {
	http.ResponseWriter
	codes chan<- int
}

func (c *coded) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *coded) WriteHeader(code int) {
	c.ResponseWriter.WriteHeader(code)
	c.codes <- code
}

// tunnel serves a tunnel to its end.
func (b *bed) tunnel(w http.ResponseWriter, r *http.Request, node string) error {
	goesOn, end, err := b.registry.Serve(w, r, node)
	if goesOn != nil {
		<-goesOn
		end()
	}
	return err
}

// serve serves tunnels at an address until the server is closed.
func (b *bed) serve(address string) *httptest.Server {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	mux := http.NewServeMux()
	s := httptest.NewUnstartedServer(mux)
	for path, answer := range map[string]func(w http.ResponseWriter, r *http.Request, node string) error{
		Path("{node}"): b.tunnel, RelayPath("{node}"): b.registry.Relay,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			ending, stop := context.WithCancel(r.Context())
			defer stop()
			defer context.AfterFunc(ctx, stop)()
			if err := answer(&coded{w, b.answered}, r.WithContext(ending), r.PathValue("node")); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		})
	}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	if address != "127.0.0.1:0" {
		b.must(s.Listener.Close())
		var err error
		s.Listener, err = net.Listen("tcp", address)
		b.must(err)
	}
	s.Config.RegisterOnShutdown(cancel)
	s.StartTLS()
	b.Cleanup(cancel)
	return s
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) dial(address string) net.Conn {
	b.Helper()
	conn, err := b.registry.Dial(b.Context(), "n1", address)
	b.must(err)
	b.Cleanup(func() { conn.Close() })
	return conn
}

// network is what can be reached from a node: listeners on the loopback in place of
// the addresses of the test.
type network struct{ at map[string]string }

func newNetwork(t *testing.T, sites map[string]site) *network {
	t.Helper()
	n := &network{map[string]string{}}
	for address, serve := range sites {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n.at[address] = l.Addr().String()
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				wg.Go(func() {
					defer conn.Close()
					serve(conn)
				})
			}
		})
		t.Cleanup(func() {
			l.Close()
			wg.Wait()
		})
	}
	return n
}

// dial connects to an address of the test, or to one of the loopback as it is.
func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if at := n.at[address]; at != "" {
		address = at
	} else if !strings.HasPrefix(address, "127.0.0.1:") {
		return nil, fmt.Errorf("dial %s: connection refused", address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func echo(conn net.Conn) { _, _ = io.Copy(conn, conn) }

// lastly reads until the other end says that nothing follows, and answers how much there was.
func lastly(conn net.Conn) {
	n, err := io.Copy(io.Discard, conn)
	fmt.Fprint(conn, n, err)
}

const pod, other, agentAt = "10.244.1.7:80", "10.244.1.8:80", "192.0.2.1:10250"

func TestConnectionThroughTunnelCarriesBothWaysAndEndsByHalves(t *testing.T) {
	b := newBed(t, map[string]site{pod: lastly, agentAt: echo})
	conn := b.dial(pod)
	for range 3 {
		_, err := conn.Write(make([]byte, 400<<10))
		b.must(err)
	}
	b.must(conn.(interface{ CloseWrite() error }).CloseWrite())
	got, err := io.ReadAll(conn)
	if want := fmt.Sprint(int64(1200<<10), error(nil)); err != nil || string(got) != want {
		t.Errorf("after the sending half was closed: got %q, %v, want %q", got, err, want)
	}

	conn = b.dial(NodeAgent)
	fmt.Fprint(conn, "hello")
	word := make([]byte, 5)
	_, err = io.ReadFull(conn, word)
	if err != nil || string(word) != "hello" {
		t.Errorf("the node's own agent: got %q, %v", word, err)
	}
	b.must(conn.Close())
	if _, err := conn.Read(word); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read of what is closed: got %v", err)
	}
	if _, err := conn.Write(word); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write to what is closed: got %v", err)
	}
}

func TestWhatWasWrittenBeforeCloseArrives(t *testing.T) {
	got := make(chan int64, 1)
	b := newBed(t, map[string]site{pod: func(conn net.Conn) {
		n, _ := io.Copy(io.Discard, conn)
		got <- n
	}})
	for _, n := range []int{1, 100 << 10, 3 << 20} {
		conn := b.dial(pod)
		_, err := conn.Write(make([]byte, n))
		b.must(err)
		b.must(conn.Close())
		if arrived := <-got; arrived != int64(n) {
			t.Errorf("of %d bytes %d arrived", n, arrived)
		}
	}
}

func TestManyStreamsAtOnceDoNotMix(t *testing.T) {
	b := newBed(t, map[string]site{pod: echo, other: echo})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var wg sync.WaitGroup
	for i := range 200 {
		sent := bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 1000+rng.IntN(50_000))
		wg.Go(func() {
			conn, err := b.registry.Dial(t.Context(), "n1", []string{pod, other}[i%2])
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			wg.Go(func() {
				if _, err := conn.Write(sent); err != nil {
					t.Error(err)
				}
			})
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("stream %d: what came back is not what was sent, %v", i, err)
			}
		})
	}
	wg.Wait()
}

// TestStreamThatNobodyReadsHoldsUpNoOther has more of them than the tunnel could
// buffer if they shared what there is room for.
func TestStreamThatNobodyReadsHoldsUpNoOther(t *testing.T) {
	var sent atomic.Int64
	stop := make(chan struct{})
	b := newBed(t, map[string]site{
		other: echo,
		pod: func(conn net.Conn) { // talks without end, and does not listen
			buf := make([]byte, 64<<10)
			for {
				n, err := conn.Write(buf)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		},
		"10.244.1.9:80": func(net.Conn) { <-stop },
	})
	defer close(stop)
	const streams = 20
	for range streams {
		b.dial(pod)
		deaf := b.dial("10.244.1.9:80")
		b.must(deaf.SetWriteDeadline(time.Now().Add(time.Millisecond)))
		for {
			if _, err := deaf.Write(make([]byte, 64<<10)); err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("write to who does not read: got %v, want that the time is over", err)
				}
				break
			}
		}
	}
	conn := b.dial(other)
	for range 50 {
		fmt.Fprint(conn, "still there")
		_, err := io.ReadFull(conn, make([]byte, len("still there")))
		b.must(err)
	}
	// What is under way: the stream's buffer, and those of the sockets.
	if most := int64(streams * (streamBuffer + 16<<20)); sent.Load() > most {
		t.Errorf("%d bytes were taken from those whom nobody reads, want %d at the most", sent.Load(), most)
	}
}

func TestNodeRefusesWhatIsNotItsBusiness(t *testing.T) {
	b := newBed(t, map[string]site{pod: echo})
	for address, want := range map[string]string{
		"10.244.2.7:80":      "node n1: 10.244.2.7:80 is no address of this node's pods",
		"127.0.0.1:22":       "node n1: 127.0.0.1:22 is no address of a pod",
		"metadata.local:80":  `node n1: "metadata.local:80" is not an address with a port`,
		"10.244.1.99:80":     "node n1: dial 10.244.1.99:80: connection refused",
		"169.254.169.254:80": "node n1: 169.254.169.254:80 is no address of a pod",
	} {
		conn, err := b.registry.Dial(t.Context(), "n1", address)
		if want = "connect to " + address + " by the tunnel of the node: " + want; err == nil || err.Error() != want {
			t.Errorf("%s: got %v, %v, want %s", address, conn, err, want)
		}
	}
	if _, err := b.registry.Dial(t.Context(), "n2", pod); !errors.Is(err, ErrNoTunnel) {
		t.Errorf("a node without a tunnel: got %v", err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+pod+"/", nil)
	b.must(err)
	res, err := b.registry.get("n1").http.RoundTrip(req)
	b.must(err)
	res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a server that asks for a page in place of a connection: got %s", res.Status)
	}
}

func TestServerGivesTunnelsOnlyToWhoSpeaksItsProtocol(t *testing.T) {
	b := newBed(t, nil)
	for _, upgrade := range []string{"", "websocket", "kemudi-tunnel/2"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.server.URL+Path("n2"), nil)
		b.must(err)
		req.Header.Set("Upgrade", upgrade)
		req.Header.Set("Connection", "Upgrade")
		res, err := b.server.Client().Do(req)
		b.must(err)
		body, err := io.ReadAll(res.Body)
		b.must(err)
		res.Body.Close()
		if res.StatusCode != 400 || !strings.Contains(string(body), "kemudi-tunnel/1") || b.registry.Has("n2") {
			t.Errorf("Upgrade: %q: got %d %s", upgrade, res.StatusCode, body)
		}
	}
}

func TestEndOfTargetIsToldAsItWas(t *testing.T) {
	b := newBed(t, map[string]site{
		pod: func(conn net.Conn) { fmt.Fprint(conn, "all") },
		other: func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1))
			conn.(*net.TCPConn).SetLinger(0)
		},
	})
	got, err := io.ReadAll(b.dial(pod))
	if err != nil || string(got) != "all" {
		t.Errorf("ended in order: got %q, %v", got, err)
	}
	conn := b.dial(other)
	fmt.Fprint(conn, "go")
	if got, err := io.ReadAll(conn); err == nil {
		t.Errorf("reset: got %q as if that were all", got)
	}
}

func TestDialEndsWithItsContextAndConnectionDoesNot(t *testing.T) {
	b := newBed(t, map[string]site{pod: echo})
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := b.registry.Dial(ctx, "n1", pod)
	b.must(err)
	defer conn.Close()
	cancel()
	fmt.Fprint(conn, "on")
	if _, err := io.ReadFull(conn, make([]byte, 2)); err != nil {
		t.Errorf("the context of the dial ended, and with it the connection: %v", err)
	}
	if _, err := b.registry.Dial(ctx, "n1", pod); !errors.Is(err, context.Canceled) {
		t.Errorf("dial by a context that has ended: got %v", err)
	}
}

func TestReadDeadlineEndsStream(t *testing.T) {
	b := newBed(t, map[string]site{pod: echo})
	conn := b.dial(pod)
	b.must(conn.SetReadDeadline(time.Now().Add(time.Hour)))
	fmt.Fprint(conn, "on")
	_, err := io.ReadFull(conn, make([]byte, 2))
	b.must(err)
	b.must(conn.SetDeadline(time.Now().Add(time.Millisecond)))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestNewTunnelOfNodeEndsTheOlder(t *testing.T) {
	b := newBed(t, map[string]site{pod: echo})
	conn, first := b.dial(pod), b.registry.get("n1")
	second, err := NewAgent(b.agent.o)
	b.must(err)
	second.SetServers([]string{b.server.URL})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = second.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a stream of the older tunnel goes on")
	}
	<-first.conn.done
	b.end() // or the two take turns for ever
	for {
		b.must(b.registry.Wait(t.Context(), "n1"))
		conn, err := b.registry.Dial(t.Context(), "n1", pod)
		if err != nil { // of the first agent's last tunnel
			continue
		}
		fmt.Fprint(conn, "on")
		_, err = io.ReadFull(conn, make([]byte, 2))
		conn.Close()
		if err == nil {
			return
		}
	}
}

func TestServerOfTwoNamesHasOneTunnel(t *testing.T) {
	b := newBed(t, map[string]site{pod: echo})
	first := b.registry.get("n1")
	at := b.server.Listener.Addr().String()
	_, port, err := net.SplitHostPort(at)
	b.must(err)
	b.network.at["example.com:"+port] = at // which is in the certificate, too
	wait.Until(t, func() error {
		if len(b.agent.others()) == 0 {
			return errors.New("the agent has not heard that the server has its tunnel")
		}
		return nil
	})
	b.agent.SetServers([]string{b.server.URL, "https://example.com:" + port})
	if code := <-b.answered; code != http.StatusConflict {
		t.Errorf("asked by the other name: got %d, want that there is one already", code)
	}
	if b.registry.get("n1") != first {
		t.Error("the tunnel was replaced")
	}
	// When the first name goes, the other takes over.
	b.agent.SetServers([]string{"https://example.com:" + port})
	<-first.conn.done
	b.must(b.registry.Wait(t.Context(), "n1"))
}

func TestTunnelComesBackAfterServerAndAgentWereGone(t *testing.T) {
	b := newBed(t, map[string]site{pod: echo})
	for range 3 {
		conn := b.dial(pod)
		address := b.server.Listener.Addr().String()
		b.server.CloseClientConnections()
		b.server.Config.Close()
		b.registry.get("n1").conn.Close() // what the end of the process does
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Fatal("a stream goes on without its server")
		}
		b.server = b.serve(address)
		b.must(b.registry.Wait(t.Context(), "n1"))
		conn = b.dial(pod)
		fmt.Fprint(conn, "on")
		_, err := io.ReadFull(conn, make([]byte, 2))
		b.must(err)
	}
	conn := b.dial(pod)
	b.end()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a stream goes on without its agent")
	}
	for b.registry.Has("n1") {
		runtime.Gosched()
	}
}

func TestServersThatAreNotNamedAnyMoreLoseTheirTunnels(t *testing.T) {
	b := newBed(t, map[string]site{pod: echo})
	first := b.registry.get("n1")
	b.agent.SetServers(nil)
	<-first.conn.done
	b.agent.SetServers([]string{b.server.URL})
	for b.registry.get("n1") == first {
		runtime.Gosched()
	}
	b.must(b.registry.Wait(t.Context(), "n1"))
	second := b.registry.get("n1")
	b.registry.Drop("n1")
	<-second.conn.done
}

// pipes is a tunnel whose ends are joined by hand, in virtual time, so that the
// network between them can be cut.
type pipes struct {
	registry *Registry
	tunnel   *tunnel
	cut      atomic.Bool
	served   chan struct{} // closed when the agent's end has ended
}

// lossy is a connection on which nothing arrives any more when it is cut.
type lossy struct {
	net.Conn
	cut *atomic.Bool
}

func (l *lossy) Write(p []byte) (int, error) {
	if l.cut.Load() {
		return len(p), nil
	}
	return l.Conn.Write(p)
}

func newPipes(t *testing.T, dial func(context.Context, string, string) (net.Conn, error)) *pipes {
	t.Helper()
	p := &pipes{served: make(chan struct{})}
	var err error
	if p.registry, err = NewRegistry(slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	agent, err := NewAgent(AgentOptions{
		NodeName: "n1", CA: x509.NewCertPool(), Certificate: func() (*tls.Certificate, error) { return nil, nil }, Dial: dial,
		Scope: Scope{NodeAgent: agentAt, Pods: func() []netip.Prefix { return nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(p.served)
		agent.serve(ctx, &lossy{far, &p.cut})
	})
	p.tunnel = &tunnel{node: "n1", conn: watch(&lossy{near, &p.cut})}
	if p.tunnel.http, err = p.registry.client.NewClientConn(p.tunnel.conn); err != nil {
		t.Fatal(err)
	}
	p.registry.add(p.tunnel)
	t.Cleanup(func() {
		cancel()
		p.tunnel.conn.Close()
		wg.Wait()
	})
	return p
}

func TestTunnelWhoseOtherEndIsSilentIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t, func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			context.AfterFunc(t.Context(), func() { far.Close() })
			return near, nil
		})
		conn, err := p.tunnel.dial(t.Context(), NodeAgent)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // of silence, and all is well
		select {
		case <-p.tunnel.conn.done:
			t.Fatal("a tunnel at rest was given up")
		default:
		}
		p.cut.Store(true)
		since := time.Now()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a read goes on when nobody is there")
		}
		<-p.tunnel.conn.done
		<-p.served
		if took := time.Since(since); took > serverPing+pingTimeout {
			t.Errorf("it took %s to notice", took)
		}
	})
}

func TestTargetThatNeverAnswersIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		since := time.Now()
		if _, err := p.tunnel.dial(t.Context(), NodeAgent); err == nil || time.Since(since) > dialTimeout {
			t.Errorf("got %v after %s", err, time.Since(since))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.tunnel.dial(ctx, NodeAgent); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestTunnelAtRestHasTwoGoroutinesAtEachEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := bubbled()
		p := newPipes(t, func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			far.Close()
			return near, nil
		})
		for range 10 {
			conn, err := p.tunnel.dial(t.Context(), NodeAgent)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		synctest.Wait()
		// The goroutine of Serve is not here.
		if got := bubbled() - before; got != 3 {
			t.Errorf("got %d goroutines, want 1 of the server and 2 of the agent", got)
		}
	})
}

// bubbled is how many goroutines a test in virtual time has.
func bubbled() int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "synctest bubble")
}
