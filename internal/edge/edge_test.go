package edge

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

func TestRequestsGoWhereTheTableSays(t *testing.T) {
	trace.Proves(t, "ING-016", "ING-018", "ING-019", "ING-022", "ING-031")
	b := newBed(t)
	b.serve("a.com", nil, b.naming("a"))
	b.serve("b.com", nil, b.naming("b"))
	b.serve("nobody.com", nil)
	for url, want := range map[string]string{
		"http://a.com/x": "200 a", "http://b.com/": "200 b", "http://A.COM/": "200 a", "http://c.com/": "404 default backend - 404",
		"http://nobody.com/": "503 no endpoint of the service is ready",
	} {
		code, text := b.get(url)
		if got := fmt.Sprint(code, " ", text); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
	// A change is in force when it has been acknowledged.
	b.order(Order{Change: route.Change{Upstreams: map[string]*route.Upstream{"a.com": {Endpoints: []string{b.naming("new")}}}}})
	if _, text := b.get("http://a.com/"); text != "new" {
		t.Errorf("after a change of endpoints: got %s, want new", text)
	}
	b.order(Order{Change: route.Change{Whole: true}})
	trace.Proves(t, "ING-021")
	if code, _ := b.get("http://a.com/"); code != http.StatusNotFound {
		t.Errorf("after an empty table: got %d, want 404", code)
	}
}

func TestWhatClientsSayOfThemselvesIsReplaced(t *testing.T) {
	b := newBed(t)
	var seen atomic.Pointer[http.Request]
	b.serve("a.com", nil, b.backend(func(_ http.ResponseWriter, r *http.Request) { seen.Store(r) }))
	for _, body := range []string{"", "which has a way of its own"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://a.com/p%61th//x?q=%zz;y", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"X-Forwarded-For": "6.6.6.6", "X-Real-IP": "6.6.6.6", "Forwarded": "for=6.6.6.6", "X_Forwarded_For": "6.6.6.6", "X-Forwarded-Proto": "https", "X-Forwarded-Scheme": "https", "X-Scheme": "https",
			"X-Forwarded-Port": "443", "X-Forwarded-Host": "evil.com", "X-Original-URL": "/admin", "Connection": "X-Secret", "X-Secret": "dropped", "X-Own": "kept", "Proxy": "http://evil.com",
			"X-Request-ID": "mine",
		} {
			r.Header.Set(name, value)
		}
		seen.Store(nil)
		_, _ = b.send(b.client(), r)
		got := seen.Load()
		if got == nil {
			t.Fatal("the request has not arrived")
		}
		for name, want := range map[string]string{
			"X-Forwarded-For": "127.0.0.1", "X-Real-Ip": "127.0.0.1", "Forwarded": "", "X_forwarded_for": "", "X-Forwarded-Proto": "http", "X-Forwarded-Scheme": "http", "X-Scheme": "http",
			"X-Forwarded-Port": "80", "X-Forwarded-Host": "a.com", "X-Original-Url": "", "X-Secret": "", "X-Own": "kept", "Proxy": "", "X-Request-Id": "mine",
		} {
			if got := strings.Join(got.Header[name], ","); got != want {
				t.Errorf("body %q: header %s: got %q, want %q", body, name, got, want)
			}
		}
		if got.Host != "a.com" || got.RequestURI != "/p%61th//x?q=%zz;y" {
			t.Errorf("body %q: got %s %s, want what was asked for", body, got.Host, got.RequestURI)
		}
	}
}

func TestRequestsThatCanBeReadInTwoWaysAreRefused(t *testing.T) {
	b := newBed(t)
	var paths atomic.Pointer[[]string]
	paths.Store(&[]string{})
	b.serve("a.com", nil, b.backend(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		list := append(slices.Clone(*paths.Load()), r.RequestURI+" "+string(body))
		paths.Store(&list)
	}))
	head := "Host: a.com\r\n"
	for _, tc := range []struct {
		name, text string
		answers    int
		want       string
	}{
		{"dots", "GET /a/../admin HTTP/1.1\r\n" + head + "\r\n", 1, "400"},
		{"encoded dots", "GET /a/%2e%2e/admin HTTP/1.1\r\n" + head + "\r\n", 1, "400"},
		{"dots with an encoded slash", "GET /a/..%2fadmin HTTP/1.1\r\n" + head + "\r\n", 1, "400"},
		{"a backslash", "GET /a%5c..%5cadmin HTTP/1.1\r\n" + head + "\r\n", 1, "400"},
		{"a zero byte", "GET /a%00b HTTP/1.1\r\n" + head + "\r\n", 1, "400"},
		{"dots with parameters", "GET /a/..;/admin HTTP/1.1\r\n" + head + "\r\n", 1, "400"},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 1, "400"},
		{"two hosts", "GET / HTTP/1.1\r\n" + head + "Host: b.com\r\n\r\n", 1, "400"},
		{"a host with a path", "GET / HTTP/1.1\r\nHost: a.com/x\r\n\r\n", 1, "400"},
		{"a tunnel", "CONNECT a.com:443 HTTP/1.1\r\n" + head + "\r\n", 1, "405"},
		{"two lengths", "POST / HTTP/1.1\r\n" + head + "Content-Length: 1\r\nContent-Length: 5\r\n\r\nabcde", 1, "400"},
		{"a length that is none", "POST / HTTP/1.1\r\n" + head + "Content-Length: +1\r\n\r\na", 1, "400"},
		{"an unknown coding", "POST / HTTP/1.1\r\n" + head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 1, "501"},
		{"a coding before the last", "POST / HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 1, "501"},
		{"a space before the colon", "POST / HTTP/1.1\r\n" + head + "Content-Length : 3\r\n\r\nabc", 1, "400"},
		{"a folded line", "GET / HTTP/1.1\r\n" + head + "X: a\r\n\tTransfer-Encoding: chunked\r\n\r\n", 1, "200"},
		{"headers without end", "GET / HTTP/1.1\r\n" + head + "X: " + strings.Repeat("a", 2*maxHeader) + "\r\n\r\n", 1, "431"},
		// Length and chunks: the chunks count, and the length goes no further.
		{"length and chunks", "POST /both HTTP/1.1\r\n" + head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /second HTTP/1.1\r\n" + head + "\r\n", 2, "200 200"},
	} {
		if got := strings.Join(b.raw(tc.text, tc.answers), " "); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
	for _, seen := range *paths.Load() {
		if strings.Contains(seen, "admin") {
			t.Errorf("the service was asked for %s", seen)
		}
	}
	if !slices.Contains(*paths.Load(), "/both abc") {
		t.Errorf("the service was asked for %q, want the chunks alone of /both", *paths.Load())
	}
}

func TestWhatHasNotBeenSentIsSentToAnotherEndpoint(t *testing.T) {
	b := newBed(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := closed.Addr().String()
	closed.Close()
	b.serve("a.com", nil, dead, b.naming("alive"))
	for range 20 {
		if code, text := b.get("POST http://a.com/"); code != 200 || text != "alive" {
			t.Fatalf("got %d %s, want alive", code, text)
		}
	}
	// What may have arrived is not sent twice.
	var asked atomic.Int32
	hangsUp := b.backend(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	b.serve("b.com", nil, hangsUp, hangsUp)
	if code, _ := b.get("POST http://b.com/"); code != http.StatusBadGateway {
		t.Errorf("a service that hangs up: got %d, want 502", code)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("a service that hangs up was asked %d times, want once", n)
	}
	b.serve("c.com", nil, dead)
	if code, _ := b.get("http://c.com/"); code != http.StatusBadGateway {
		t.Errorf("no endpoint can be reached: got %d, want 502", code)
	}
}

func TestEndpointsAreTakenInTurn(t *testing.T) {
	b := newBed(t)
	b.serve("a.com", nil, b.naming("1"), b.naming("2"), b.naming("3"))
	count := map[string]int{}
	for range 30 {
		_, text := b.get("http://a.com/")
		count[text]++
	}
	for _, name := range []string{"1", "2", "3"} {
		if count[name] != 10 {
			t.Errorf("got %v, want 10 each", count)
			break
		}
	}
}

func TestRequestsUnderWayOutliveTheirEndpoint(t *testing.T) {
	b := newBed(t)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	b.serve("a.com", nil, b.backend(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-goOn
		fmt.Fprint(w, "old")
	}))
	answer := make(chan string, 1)
	go func() {
		res, err := b.client().Get("http://a.com/")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		answer <- string(text)
	}()
	<-arrived
	b.serve("a.com", nil, b.naming("new"))
	if _, text := b.get("http://a.com/"); text != "new" {
		t.Errorf("a new request: got %s, want new", text)
	}
	close(goOn)
	if got := <-answer; got != "old" {
		t.Errorf("the request under way: got %s, want old", got)
	}
}

func TestConnectionsAreUpgraded(t *testing.T) {
	b := newBed(t)
	b.serve("a.com", nil, b.backend(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		rw.Flush()
		line, _ := rw.ReadString('\n')
		fmt.Fprint(rw, "echo ", line)
		rw.Flush()
	}))
	conn, err := net.Dial("tcp", b.at(httpPort))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v, want 101", res, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := in.ReadString('\n'); line != "echo hello\n" {
		t.Errorf("got %q, %v, want an echo", line, err)
	}
}

func TestGRPCGoesByHTTP2WithItsTrailers(t *testing.T) {
	b := newBed(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Protocols: &http.Protocols{}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Proto, " ", string(body))
		w.Header().Set("Grpc-Status", "7")
	})}
	s.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	b.serve("a.com", &route.Options{Protocol: route.GRPC}, l.Addr().String())
	c := b.client()
	tr := c.Transport.(*http.Transport)
	tr.Protocols = &http.Protocols{}
	tr.Protocols.SetUnencryptedHTTP2(true)
	for _, url := range []string{"http://a.com/svc/Method"} {
		res, err := c.Post(url, "application/grpc", strings.NewReader("message"))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(text) != "HTTP/2.0 message" || res.Trailer.Get("Grpc-Status") != "7" {
			t.Errorf("got %q, trailers %v, want HTTP/2 and its status", text, res.Trailer)
		}
	}
}

// pair makes a certificate for names.
func pair(t testing.TB, names ...string) *route.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &route.Certificate{Chain: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})}
}

func TestCertificatesAreShownByName(t *testing.T) {
	trace.Proves(t, "ING-033", "ING-034", "ING-035", "ING-037")
	b := newBed(t)
	sites := map[string]*route.Site{}
	for _, name := range []string{"a", "b", "broken"} {
		host := name + ".com"
		sites[name] = &route.Site{Key: name, Rules: []route.Rule{{Host: host, Type: route.Prefix, Upstream: "up"}}, TLS: []route.TLS{{Hosts: []string{host}, Certificate: name}}}
	}
	change := route.Change{
		Sites: sites, Upstreams: map[string]*route.Upstream{"up": {Endpoints: []string{b.naming("clear text")}}},
		Certificates: map[string]*route.Certificate{"a": pair(t, "a.com"), "b": pair(t, "b.com"), "broken": {Chain: []byte("x"), Key: []byte("y")}},
	}
	b.order(Order{Change: change})
	shown := func(name string) string {
		conn, err := tls.Dial("tcp", b.at(httpsPort), &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		s := conn.ConnectionState()
		return s.PeerCertificates[0].Subject.CommonName + " " + s.NegotiatedProtocol
	}
	const own = "Kemudi Ingress without a certificate h2"
	for name, want := range map[string]string{"a.com": "a.com h2", "B.com": "b.com h2", "c.com": own, "broken.com": own} {
		if got := shown(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if code, text := b.get("https://a.com/"); code != 200 || text != "clear text" {
		t.Errorf("over TLS: got %d %s, want what the service says", code, text)
	}
	// Without TLS, clients are sent there.
	res, _ := b.do("http://a.com/x?y=z")
	if at := res.Header.Get("Location"); res.StatusCode != http.StatusPermanentRedirect || at != "https://a.com/x?y=z" {
		t.Errorf("without TLS: got %d to %s, want a redirect", res.StatusCode, at)
	}
	b.order(Order{Change: route.Change{Certificates: map[string]*route.Certificate{"a": pair(t, "renewed")}}})
	if got := shown("a.com"); got != "renewed h2" {
		t.Errorf("after a change of the certificate: got %s, want renewed", got)
	}
}

func TestPortsThatAreTakenAreServedWhenTheyAreFree(t *testing.T) {
	b := newBed(t)
	b.taken.Store(true)
	b.order(Order{Ports: &Ports{HTTP: 81, HTTPS: httpsPort, Status: statusPort}})
	next := func() PortState {
		for {
			var r Report
			if err := b.control.Receive(&r); err != nil {
				t.Fatal(err)
			}
			if r.Port != nil && r.Port.Port == 81 {
				return *r.Port
			}
		}
	}
	if s := next(); !s.Taken || s.Error == "" {
		t.Errorf("got %+v, want that the port is taken", s)
	}
	if code, _ := b.get("http://127.0.0.1:10254/healthz"); code != http.StatusServiceUnavailable {
		t.Errorf("health meanwhile: got %d, want 503", code)
	}
	b.taken.Store(false)
	if s := next(); s.Taken || s.Error != "" {
		t.Errorf("got %+v, want that the port is served", s)
	}
	if code, _ := b.get("http://a.com:81/"); code != http.StatusNotFound {
		t.Errorf("got %d, want an answer on the new port", code)
	}
}

func TestWhoFeedsMayComeAndGo(t *testing.T) {
	b := newBed(t)
	b.serve("a.com", nil, b.naming("a"))
	socket := b.edge.o.Control.Addr().String()
	b.control.Close()
	if _, text := b.get("http://a.com/"); text != "a" {
		t.Errorf("while nobody feeds it: got %s, want a", text)
	}
	b.control = b.connect(socket)
	var r Report
	if err := b.control.Receive(&r); err != nil || r.Hello == nil {
		t.Fatalf("got %+v, %v, want hello", r, err)
	}
	b.order(Order{Change: route.Change{Whole: true}})
	if code, _ := b.get("http://a.com/"); code != http.StatusNotFound {
		t.Errorf("after an empty table: got %d, want 404", code)
	}
	if err := b.control.Send(Order{Leave: true}); err != nil {
		t.Fatal(err)
	}
	if err := b.end(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestClientsThatAreGoneEndTheirRequest(t *testing.T) {
	b := newBed(t)
	arrived, ended := make(chan struct{}), make(chan struct{})
	b.serve("a.com", nil, b.backend(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(ended)
	}))
	conn, err := net.Dial("tcp", b.at(httpPort))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a.com\r\n\r\n")
	<-arrived
	conn.Close()
	<-ended
}

func TestSilentServicesAreNotWaitedFor(t *testing.T) {
	b := newBed(t)
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	b.serve("a.com", &route.Options{Read: 50}, b.backend(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-done:
		}
	}))
	if code, _ := b.get("http://a.com/"); code != http.StatusGatewayTimeout {
		t.Errorf("got %d, want 504", code)
	}
}

func TestMetricsAndHealthAreServedToTheMachine(t *testing.T) {
	b := newBed(t)
	b.serve("a.com", nil, b.naming("a"))
	_, _ = b.get("http://a.com/")
	wait.Until(t, func() error {
		_, text := b.get("http://127.0.0.1:10254/metrics")
		for _, want := range []string{`kemudi_edge_requests_total{code="2xx"} 1`, "kemudi_edge_sites 1"} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("no %s in %s", want, text)
			}
		}
		return nil
	})
	if code, text := b.get("http://127.0.0.1:10254/healthz"); code != 200 || text != "ok" {
		t.Errorf("health: got %d %s, want ok", code, text)
	}
}
