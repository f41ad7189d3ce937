package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

func TestServingThatCannotBeIsRefused(t *testing.T) {
	for want, s := range map[string]Serving{
		"--http2-max-streams-per-connection can not be negative value":                                                              {Streams: -1},
		"--goaway-chance can not be less than 0 or greater than 0.02":                                                               {GoAway: 0.03},
		"--shutdown-delay-duration can not be negative value":                                                                       {Delay: -1},
		"empty value in --cors-allowed-origins":                                                                                     {Origins: []string{""}},
		"--cors-allowed-origins has an invalid regular expression: error parsing regexp":                                            {Origins: []string{"^https://(x$"}},
		"regular expression does not pin to start/end of host in the origin header":                                                 {Origins: []string{"ui.example.com"}},
		"empty value in --strict-transport-security-directives":                                                                     {Transport: []string{" "}},
		`--strict-transport-security-directives invalid: "max-age": allowed values: max-age=expireTime, includeSubDomains, preload`: {Transport: []string{"preload", "max-age"}},
	} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %s", s, err, want)
		}
	}
	all := Serving{Streams: 10, GoAway: 0.02, Origins: []string{"^https://ui$", "//localhost(:|$)"}, Transport: []string{"max-age=1", "includeSubDomains", "preload"}, Delay: time.Second}
	if err := all.Check(); err != nil {
		t.Error(err)
	}
}

func TestPagesOfOtherSitesMayAskIfTheyAreNamed(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.Serving = Serving{Origins: []string{`^https://ui\.example\.com$`, "//localhost(:|$)"}, Transport: []string{"max-age=31536000", "preload"}}
	})
	for origin, want := range map[string]bool{
		"https://ui.example.com": true, "http://localhost:8080": true, "https://ui.example.com.evil": false, "https://other": false, "": false,
	} {
		w := f.ask("GET", mapsPath, "", "Origin: "+origin)
		if got := w.Header().Get("Access-Control-Allow-Origin"); w.Code != 200 || (got == origin && got != "") != want {
			t.Errorf("%q: got %d and allowed %q", origin, w.Code, got)
		}
		if got := w.Header().Get("Strict-Transport-Security"); got != "max-age=31536000; preload" {
			t.Errorf("got %q", got)
		}
		if got := f.ask("OPTIONS", mapsPath, "", "Origin: "+origin).Code; (got == 204) != want {
			t.Errorf("%q asks ahead: got %d", origin, got)
		}
	}
	w := f.ask("OPTIONS", mapsPath, "", "Origin: http://localhost")
	for name, want := range map[string]string{
		"Access-Control-Allow-Methods": "POST, GET, OPTIONS, PUT, DELETE, PATCH", "Access-Control-Expose-Headers": "Date", "Access-Control-Allow-Credentials": "true",
		"Access-Control-Allow-Headers": "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestClientsAreAskedToConnectAnewAtRandom(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Serving.GoAway = mostGoAway })
	f.o.Serving.GoAway = 1 // what nobody may ask for, so that chance has no part in it
	at := f.serveTLS()
	var mu sync.Mutex
	from := map[string]bool{}
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			from[c.LocalAddr().String()] = true
		}
		return c, err
	}}
	defer tr.CloseIdleConnections()
	const n = 5
	for range n {
		res, err := (&http.Client{Transport: tr}).Get("https://" + at + "/version")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.ProtoMajor != 2 {
			t.Errorf("got HTTP/%d, %v", res.ProtoMajor, err)
		}
		res.Body.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(from) < 2 {
		t.Errorf("%d requests went over %d connections, want some over new ones", n, len(from))
	}
}

func TestHTTP2CanBeTurnedOff(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Serving.NoHTTP2 = true })
	at := f.serveTLS()
	conn, err := tls.Dial("tcp", at, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if got := conn.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("got %q, want HTTP/1.1", got)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Get("https://" + at + "/api/v1/namespaces?watch=1&timeoutSeconds=1")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != 200 || res.ProtoMajor != 1 {
		t.Errorf("got %d over HTTP/%d, %v", res.StatusCode, res.ProtoMajor, err)
	}
}

// silent is a listener to which nobody comes.
type silent struct {
	net.Listener
	closed chan struct{}
	once   sync.Once
}

func (l *silent) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

func (l *silent) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *silent) Addr() net.Addr { return &net.TCPAddr{} }

func TestAServerGoesOnForAWhileWhenItIsToldToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(o *Options) { o.Serving.Delay = time.Minute })
		l := &silent{closed: make(chan struct{})}
		g := task.NewGroup(t.Context())
		g.Go("serve", func(ctx context.Context) error {
			return f.Serve(ctx, l, &tls.Config{Certificates: []tls.Certificate{certificate(t)}})
		})
		synctest.Wait()
		f.must(200, "GET", "/readyz/shutdown", "")
		told := time.Now()
		g.Cancel(context.Canceled)
		synctest.Wait()
		if got := f.must(500, "GET", "/readyz/shutdown", ""); !strings.Contains(got, "process is shutting down") {
			t.Errorf("got %s", got)
		}
		f.must(200, "GET", "/livez", "")
		select {
		case <-l.closed:
			t.Error("the server takes no connections any more, want it to for a minute")
		default:
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		if got := time.Since(told); got < time.Minute || got > 2*time.Minute {
			t.Errorf("it has ended %v after it was told to, want a minute", got)
		}
	})
}

func TestStrangersWithWhomThereIsNoTLSAreCounted(t *testing.T) {
	f := newFixture(t)
	at := f.serveTLS()
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, func() error {
		if got := f.must(200, "GET", "/metrics", ""); !strings.Contains(got, "apiserver_tls_handshake_errors_total 1\n") {
			return errors.New("it is not counted")
		}
		return nil
	})
}
