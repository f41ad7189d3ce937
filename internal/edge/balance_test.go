package edge

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/serve"
	"github.com/kemudi/kemudi/test/wait"
)

// balance has a door of a balancer with one listener, whose connections go to the upstream "pods".
func (b *bed) balance(relay route.Relay, l route.Listener, c route.Change) {
	b.Helper()
	relay.Service = "team/web"
	to := route.Backend{Upstream: "pods", Weight: 1}
	if len(l.Sites) == 0 {
		l.Sites = []*route.Site{{Key: "team/web", Rules: []route.Rule{{Type: route.Prefix, Do: 1}}, Actions: []route.Action{{Backends: []route.Backend{to}}}}}
	}
	c.Doors = map[string]*route.Door{"balancer/team/web:443": {Port: doorPort, Public: 443, Listeners: []route.Listener{l}, Relay: &relay}}
	b.order(Order{Change: c})
	wait.Until(b.T, func() error {
		if b.at(doorPort) == "" {
			return errors.New("the door is not open")
		}
		return nil
	})
}

// encrypted is a site whose pods speak TLS.
func encrypted() []*route.Site {
	return []*route.Site{{Key: "team/web", Rules: []route.Rule{{Type: route.Prefix, Do: 1}}, Actions: []route.Action{{Backends: []route.Backend{{Upstream: "pods", Weight: 1, Protocol: route.HTTPS}}}}}}
}

func endpoints(list ...string) map[string]*route.Upstream {
	return map[string]*route.Upstream{"pods": {Endpoints: list}}
}

// echo is a pod of TCP that says its name, and what it is sent.
func (b *bed) echo(name string) string {
	return serve.TCP(b, func(c net.Conn) {
		fmt.Fprintln(c, name)
		_, _ = io.Copy(c, c)
	})
}

// unread is a connection of which a part has been read already.
type unread struct {
	net.Conn
	rest *bufio.Reader
}

func (u *unread) Read(p []byte) (int, error) { return u.rest.Read(p) }

// line reads one, or fails.
func line(t *testing.T, c net.Conn, r *bufio.Reader) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("read a line: %v", err)
	}
	return strings.TrimSpace(text)
}

func (b *bed) dial() (net.Conn, *bufio.Reader) {
	b.Helper()
	c, err := net.Dial("tcp", b.at(doorPort))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

// TestBalancersTellPodsOfClients has pods that are told of clients by the PROXY protocol, before TLS or what else
// the client says.
func TestBalancersTellPodsOfClients(t *testing.T) {
	cert, authority := secret(t, "web.com")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	inside, err := tls.X509KeyPair(cert.Chain, cert.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		version int
		mode    route.Mode
		pod     bool // speaks TLS
		ids     []string
	}{
		{"bytes of version 1", 1, route.Bytes, false, []string{"SVC-129", "SVC-132", "SVC-180"}},
		{"bytes of version 2", 2, route.Bytes, false, []string{"SVC-180"}},
		{"TLS that ends, version 1", 1, route.Terminate, false, []string{"SVC-124", "SVC-129", "SVC-132"}},
		{"TLS that begins anew, version 2", 2, route.Terminate, true, []string{"SVC-127", "SVC-180"}},
		{"TLS that begins anew, without it", 0, route.Terminate, true, []string{"SVC-127"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBed(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			listener := route.Listener{Mode: tc.mode}
			if tc.mode == route.Terminate {
				listener.Certificates = []string{"cert"}
			}
			if tc.pod {
				listener.Sites = encrypted()
			}
			b.balance(route.Relay{Header: tc.version}, listener, route.Change{Upstreams: endpoints(l.Addr().String()), Certificates: map[string]*route.Certificate{"cert": cert}})
			c, err := net.Dial("tcp", b.at(doorPort))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			client := c
			if tc.mode == route.Terminate {
				client = tls.Client(c, &tls.Config{ServerName: "web.com", RootCAs: pool})
			}
			said := make(chan error, 1)
			go func() {
				_, err := client.Write([]byte("hello\n"))
				said <- err
			}()
			got, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer got.Close()
			r := bufio.NewReader(got)
			if err := got.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if tc.version > 0 {
				h, err := proxyproto.Read(r)
				if err != nil {
					t.Fatal(err)
				}
				if int(h.Version) != tc.version || h.SourceAddr.String() != c.LocalAddr().String() || h.DestinationAddr.String() != c.RemoteAddr().String() {
					t.Errorf("got version %d, from %s to %s; want %d, %s, %s", h.Version, h.SourceAddr, h.DestinationAddr, tc.version, c.LocalAddr(), c.RemoteAddr())
				}
			}
			if tc.pod {
				r = bufio.NewReader(tls.Server(&unread{got, r}, &tls.Config{Certificates: []tls.Certificate{inside}}))
			}
			if word, err := r.ReadString('\n'); word != "hello\n" {
				t.Errorf("the pod: got %q, %v; want hello", word, err)
			}
			if err := <-said; err != nil {
				t.Error(err)
			}
			trace.Proves(t, tc.ids...)
		})
	}
}

// TestBalancersOfHTTPTellPodsOfClientsByHeaders has requests passed on, in the clear and with TLS on either side.
func TestBalancersOfHTTPTellPodsOfClientsByHeaders(t *testing.T) {
	cert, _ := secret(t, "web.com")
	tell := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Forwarded-For"), " ", r.Header.Get("X-Forwarded-Proto"), " ", r.Header.Get("X-Forwarded-Port"), " ", r.TLS != nil)
	})
	plain, secure := httptest.NewServer(tell), httptest.NewTLSServer(tell)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	for _, tc := range []struct {
		name string
		mode route.Mode
		pod  bool
		want string
		ids  []string
	}{
		{"http", route.Plain, false, "127.0.0.1 http 443 false", []string{"SVC-126", "SVC-128", "SVC-179"}},
		{"https to http", route.Secure, false, "127.0.0.1 https 443 false", []string{"SVC-128", "SVC-179"}},
		{"https to https", route.Secure, true, "127.0.0.1 https 443 true", []string{"SVC-127", "SVC-128"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBed(t)
			l, scheme, at := route.Listener{Mode: tc.mode}, "http", plain.Listener.Addr().String()
			if tc.mode == route.Secure {
				l.Certificates, scheme = []string{"cert"}, "https"
			}
			if tc.pod {
				l.Sites, at = encrypted(), secure.Listener.Addr().String()
			}
			b.balance(route.Relay{Idle: 60_000}, l, route.Change{Upstreams: endpoints(at), Certificates: map[string]*route.Certificate{"cert": cert}})
			hc := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}, Timeout: 30 * time.Second}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+b.at(doorPort)+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Forwarded-For", "192.0.2.66") // a client's own word counts for nothing
			res, err := hc.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			got, err := io.ReadAll(res.Body)
			if err != nil || string(got) != tc.want {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
			trace.Proves(t, tc.ids...)
		})
	}
}

func TestBalancersShowTheCertificateOfNow(t *testing.T) {
	b := newBed(t)
	first, _ := secret(t, "first.com")
	second, _ := secret(t, "second.com")
	pod := b.echo("one")
	l := route.Listener{Mode: route.Terminate, Certificates: []string{"cert"}}
	show := func() (name string) {
		t.Helper()
		c, err := tls.Dial("tcp", b.at(doorPort), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return "refused"
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	b.balance(route.Relay{}, l, route.Change{Upstreams: endpoints(pod)})
	if got := show(); got != "refused" {
		t.Errorf("without a certificate: got %s, want a refusal", got)
	}
	b.order(Order{Change: route.Change{Certificates: map[string]*route.Certificate{"cert": first}}})
	if got := show(); got != "first.com" {
		t.Errorf("got %s, want first.com", got)
	}
	long, err := tls.Dial("tcp", b.at(doorPort), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer long.Close()
	r := bufio.NewReader(long)
	if got := line(t, long, r); got != "one" {
		t.Errorf("got %s, want one", got)
	}
	b.order(Order{Change: route.Change{Certificates: map[string]*route.Certificate{"cert": second}}})
	if got := show(); got != "second.com" {
		t.Errorf("after the change: got %s, want second.com", got)
	}
	if _, err := fmt.Fprintln(long, "still there"); err != nil {
		t.Fatal(err)
	}
	if got := line(t, long, r); got != "still there" {
		t.Errorf("a connection from before the change: got %q", got)
	}
	trace.Proves(t, "SVC-125")
}

func TestBalancersKeepConnectionsToEndpointsThatGoForAsLongAsTheyMay(t *testing.T) {
	b := newBed(t)
	one, two := b.echo("one"), b.echo("two")
	b.balance(route.Relay{Drain: 300}, route.Listener{Mode: route.Bytes}, route.Change{Upstreams: endpoints(one)})
	c, r := b.dial()
	if got := line(t, c, r); got != "one" {
		t.Fatalf("got %s, want one", got)
	}
	b.order(Order{Change: route.Change{Upstreams: endpoints(two)}})
	began := time.Now()
	fresh, fr := b.dial()
	if got := line(t, fresh, fr); got != "two" {
		t.Errorf("a new connection: got %s, want two", got)
	}
	if _, err := fmt.Fprintln(c, "still there"); err != nil {
		t.Fatal(err)
	}
	if got := line(t, c, r); got != "still there" {
		t.Errorf("the connection to who has gone: got %q", got)
	}
	if _, err := r.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the time for draining: got %v, want an end", err)
	}
	if took := time.Since(began); took < 250*time.Millisecond {
		t.Errorf("the connection ended after %s, want 300 ms", took)
	}
	trace.Proves(t, "SVC-137", "SVC-138")
	// Who comes back in time keeps its connections.
	b.order(Order{Change: route.Change{Upstreams: endpoints(one)}})
	b.order(Order{Change: route.Change{Upstreams: endpoints(two)}})
	if _, err := fmt.Fprintln(fresh, "word"); err != nil {
		t.Fatal(err)
	}
	if got := line(t, fresh, fr); got != "word" {
		t.Errorf("got %q, want word", got)
	}
	if err := fresh.SetReadDeadline(time.Now().Add(600 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := fr.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection to who has come back: got %v, want that it lasts", err)
	}
}

// TestBalancersEndRequestsToEndpointsThatHaveGone has a pod that never comes to the end of its answer.
func TestBalancersEndRequestsToEndpointsThatHaveGone(t *testing.T) {
	b := newBed(t)
	ended := make(chan struct{})
	pod := b.backend(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})
	b.balance(route.Relay{Drain: 300}, route.Listener{Mode: route.Plain}, route.Change{Upstreams: endpoints(pod)})
	c, r := b.dial()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: web.com\r\n\r\n")
	for line(t, c, r) != "begun" {
	}
	began := time.Now()
	b.order(Order{Change: route.Change{Upstreams: endpoints(b.naming("other"))}})
	if rest, err := io.ReadAll(r); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the rest of the answer: got %q, %v; want an end", rest, err)
	}
	if took := time.Since(began); took < 250*time.Millisecond {
		t.Errorf("the request has ended after %s, want 300 ms", took)
	}
	<-ended
	trace.Proves(t, "SVC-137", "SVC-138")
}

func TestBalancersEndConnectionsThatAreSilent(t *testing.T) {
	b := newBed(t)
	b.balance(route.Relay{Idle: 500}, route.Listener{Mode: route.Bytes}, route.Change{Upstreams: endpoints(b.echo("one"))})
	c, r := b.dial()
	if got := line(t, c, r); got != "one" {
		t.Fatalf("got %s, want one", got)
	}
	began := time.Now()
	for i := range 8 { // who speaks is not silent, for longer than one may be
		if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("word %d: got %v, want nothing for a while", i, err)
		}
		if _, err := fmt.Fprintln(c, i); err != nil {
			t.Fatal(err)
		}
		if got := line(t, c, r); got != fmt.Sprint(i) {
			t.Fatalf("got %q, want %d", got, i)
		}
	}
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	quiet := time.Now()
	if _, err := r.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent connection: got %v, want an end", err)
	}
	if silent, all := time.Since(quiet), time.Since(began); silent < 400*time.Millisecond || all < 1200*time.Millisecond {
		t.Errorf("ended after %s of silence, %s in all; want 500 ms of silence", silent, all)
	}
	trace.Proves(t, "SVC-139")
}

// TestBalancersEndConnectionsOfHTTPThatAreSilent has a connection that is kept after an answer, and a pod that takes longer
// for one than others may be silent.
func TestBalancersEndConnectionsOfHTTPThatAreSilent(t *testing.T) {
	b := newBed(t)
	asked := make(chan struct{})
	pod := b.backend(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(asked)
			<-r.Context().Done()
			return
		}
		fmt.Fprintln(w, "web")
	})
	b.balance(route.Relay{Idle: 400}, route.Listener{Mode: route.Plain}, route.Change{Upstreams: endpoints(pod)})
	c, r := b.dial()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: web.com\r\n\r\n")
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(res.Body); string(body) != "web\n" {
		t.Fatalf("got %q, %v; want web", body, err)
	}
	quiet := time.Now()
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("a connection that is kept: got %v, want an end", err)
	}
	if silent := time.Since(quiet); silent < 300*time.Millisecond {
		t.Errorf("it has ended after %s, want 400 ms", silent)
	}
	c, r = b.dial()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "GET /slow HTTP/1.1\r\nHost: web.com\r\n\r\n")
	<-asked
	if res, err := http.ReadResponse(r, nil); err == nil && res.StatusCode != http.StatusGatewayTimeout || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a pod that is silent: got %v, %v; want an end, or 504", res, err)
	}
	trace.Proves(t, "SVC-139")
}

func TestBalancersLogWhatTheyAreToldTo(t *testing.T) {
	b := newBed(t)
	path := filepath.Join(t.TempDir(), "access.log")
	j := &journal{path: path}
	t.Cleanup(func() { j.Close() })
	b.edge.access = slog.New(slog.NewTextHandler(j, nil))
	pod := b.echo("one")
	for _, on := range []bool{false, true} {
		b.balance(route.Relay{Log: on}, route.Listener{Mode: route.Bytes}, route.Change{Upstreams: endpoints(pod)})
		c, r := b.dial()
		line(t, c, r)
		fmt.Fprintln(c, "hello")
		line(t, c, r)
		c.Close()
		if on {
			want := fmt.Sprintf("msg=connection service=team/web client=%s at=%s name=\"\" endpoint=%s received=6 sent=10", c.LocalAddr(), c.RemoteAddr(), pod)
			wait.Until(t, func() error {
				got, err := os.ReadFile(path)
				if err != nil || !strings.Contains(string(got), want) || bytes.Count(got, []byte("\n")) != 1 {
					return fmt.Errorf("the log: got %q, %v; want one line with %q", got, err, want)
				}
				return nil
			})
		}
	}
	b.balance(route.Relay{Log: true}, route.Listener{Mode: route.Plain}, route.Change{Upstreams: endpoints(b.naming("web"))})
	res, err := http.Get("http://" + b.at(doorPort) + "/some/path")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	wait.Until(t, func() error {
		got, err := os.ReadFile(path)
		if want := "method=GET host=127.0.0.1 path=/some/path"; err != nil || !strings.Contains(string(got), want) || !strings.Contains(string(got), "status=200") {
			return fmt.Errorf("the log: got %q, %v; want %q", got, err, want)
		}
		return nil
	})
	trace.Proves(t, "SVC-133")
}

func TestAccessLogsArePutAsideWhenTheyAreLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, mostLogged-4); err != nil {
		t.Fatal(err)
	}
	j := &journal{path: path}
	defer j.Close()
	for _, text := range []string{"one\n", "two\n"} {
		if _, err := j.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); string(got) != "two\n" {
		t.Errorf("the log: got %q, %v; want two", got, err)
	}
	if old, err := os.Stat(path + ".1"); err != nil || old.Size() != mostLogged {
		t.Errorf("the log of before: got %v, %v; want %d bytes", old, err, mostLogged)
	}
}

// TestBalancersTakeOnlyWhatIsLedToThem: who connects to the edge's port past the rules of the proxy is not let in.
func TestBalancersTakeOnlyWhatIsLedToThem(t *testing.T) {
	b := newBed(t)
	pod := b.echo("one")
	for address, want := range map[string]string{"127.0.0.1": "one", "192.0.2.7": ""} {
		b.balance(route.Relay{Addresses: []netip.Addr{netip.MustParseAddr(address)}}, route.Listener{Mode: route.Bytes}, route.Change{Upstreams: endpoints(pod)})
		c, r := b.dial()
		if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		got, err := r.ReadString('\n')
		if strings.TrimSpace(got) != want || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a balancer at %s, connected to at 127.0.0.1: got %q, %v; want %q", address, got, err, want)
		}
	}
}

func TestBalancersWithAffinityKeepAClientsEndpoint(t *testing.T) {
	b := newBed(t)
	list := []string{b.echo("one"), b.echo("two"), b.echo("three")}
	for _, sticky := range []bool{true, false} {
		b.balance(route.Relay{Sticky: sticky}, route.Listener{Mode: route.Bytes}, route.Change{Upstreams: endpoints(list...)})
		seen := map[string]bool{}
		for range 9 {
			c, r := b.dial()
			seen[line(t, c, r)] = true
		}
		if want := map[bool]int{true: 1, false: 3}[sticky]; len(seen) != want {
			t.Errorf("affinity %v: one client came to %v, want %d of three", sticky, seen, want)
		}
	}
}
