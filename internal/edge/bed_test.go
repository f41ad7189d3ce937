package edge

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// bed is an edge with who feeds it.
type bed struct {
	*testing.T
	edge    *Edge
	control *Control
	last    int64
	end     func() error // waits until it has ended

	taken atomic.Bool // no port is free

	mu struct {
		sync.Mutex
		at map[string]string // where ports are served, by the port that was asked for
	}
}

const (
	httpPort   = 80
	httpsPort  = 443
	statusPort = 10254
)

func newBed(t *testing.T) *bed {
	b := &bed{T: t}
	b.mu.at = map[string]string{}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	b.edge = New(Options{Control: l, Version: "v1", Listen: b.listen, ListenPacket: b.listenPacket})
	g := task.NewGroup(t.Context())
	g.Go("edge", b.edge.Run)
	b.end = g.Wait
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	b.control = b.connect(l.Addr().String())
	var r Report
	if err := b.control.Receive(&r); err != nil || r.Hello == nil || r.Hello.Version != "v1" {
		t.Fatalf("got %+v, %v, want hello", r, err)
	}
	b.order(Order{Ports: &Ports{HTTP: httpPort, HTTPS: httpsPort, Status: statusPort}})
	wait.Until(t, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.mu.at) < 3 {
			return fmt.Errorf("ports %v are served", b.mu.at)
		}
		return nil
	})
	return b
}

func (b *bed) connect(socket string) *Control {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	c := NewControl(conn)
	b.Cleanup(func() { c.Close() })
	return c
}

// listen serves each port on one that is free.
func (b *bed) listen(ctx context.Context, network, address string) (net.Listener, error) {
	if b.taken.Load() {
		return nil, &net.OpError{Op: "listen", Err: syscall.EADDRINUSE}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, network, "127.0.0.1:0")
	if err == nil {
		b.found(address, l.Addr())
	}
	return l, err
}

// listenPacket does the same for ports of UDP.
func (b *bed) listenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	c, err := (&net.ListenConfig{}).ListenPacket(ctx, network, "127.0.0.1:0")
	if err == nil {
		b.found(address, c.LocalAddr())
	}
	return c, err
}

// found notes where the port of an address is.
func (b *bed) found(address string, at net.Addr) {
	_, port, _ := net.SplitHostPort(address)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.at[port] = at.String()
}

func (b *bed) at(port int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.at[fmt.Sprint(port)]
}

// order gives an order and waits until it is in force.
func (b *bed) order(o Order) {
	b.Helper()
	b.last++
	o.Generation = b.last
	if err := b.control.Send(o); err != nil {
		b.Fatal(err)
	}
	for {
		var r Report
		if err := b.control.Receive(&r); err != nil {
			b.Fatal(err)
		}
		if r.Applied == b.last {
			return
		}
	}
}

// serve sends all that is for a host to endpoints, as a site with these options.
func (b *bed) serve(host string, o *route.Options, endpoints ...string) {
	b.Helper()
	b.order(Order{Change: route.Change{
		Sites:     map[string]*route.Site{"team/" + host: {Key: "team/" + host, Rules: []route.Rule{{Host: host, Type: route.Prefix, Upstream: host}}, Options: o}},
		Upstreams: map[string]*route.Upstream{host: {Endpoints: endpoints}},
	}})
}

// backend serves by a handler and returns its address.
func (b *bed) backend(h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	b.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// naming is a backend that answers with a name.
func (b *bed) naming(name string) string {
	return b.backend(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
}

// client is one that finds all hosts at the edge, and follows no redirects.
func (b *bed) client() *http.Client {
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(address)
			b.mu.Lock()
			at := b.mu.at[port]
			b.mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, network, at)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	b.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get returns status and body of an address, "GET" unless a method stands before it.
func (b *bed) get(url string, headers ...string) (int, string) {
	b.Helper()
	res, text := b.do(url, headers...)
	return res.StatusCode, text
}

func (b *bed) do(url string, headers ...string) (*http.Response, string) {
	b.Helper()
	method, rest, ok := strings.Cut(url, " ")
	if !ok {
		method, rest = http.MethodGet, url
	}
	r, err := http.NewRequestWithContext(b.Context(), method, rest, nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Add(name, value)
		}
	}
	return b.send(b.client(), r)
}

// send has a client send a request, and returns the answer and what it says.
func (b *bed) send(c *http.Client, r *http.Request) (*http.Response, string) {
	b.Helper()
	res, err := c.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.Fatal(err)
	}
	return res, strings.TrimSpace(string(text))
}

// raw sends bytes to the HTTP port and returns the answers until the edge closes, or until as many
// as there are have come.
func (b *bed) raw(text string, answers int) (status []string) {
	b.Helper()
	conn, err := net.Dial("tcp", b.at(httpPort))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		b.Fatal(err)
	}
	in := bufio.NewReader(conn)
	for len(status) < answers {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return append(status, "closed")
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			return append(status, "broken")
		}
		status = append(status, fmt.Sprint(res.StatusCode))
	}
	return status
}
