package hook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/hook"
)

// place is a webhook that answers as its test says.
type place struct {
	*httptest.Server
	ca    []byte
	conns atomic.Int32
}

func newPlace(t *testing.T, host string, answer http.HandlerFunc) *place {
	t.Helper()
	authority, err := pki.NewAuthority("webhooks")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.Subject{Name: "webhook", Hosts: []string{host}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	p := &place{Server: httptest.NewUnstartedServer(answer), ca: authority.CertPEM()}
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair.TLS()}}
	p.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			p.conns.Add(1)
		}
	}
	p.EnableHTTP2 = true
	p.StartTLS()
	t.Cleanup(p.Close)
	return p
}

// caller reaches every service at the place.
func caller(t *testing.T, p *place) *hook.Caller {
	t.Helper()
	c := hook.New(hook.Options{Dial: func(ctx context.Context, s hook.Service) (net.Conn, error) {
		if s.Namespace != "shop" || s.Name != "checks" {
			return nil, fmt.Errorf("no endpoints available for service %q", s.Name)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", p.Listener.Addr().String())
	}})
	t.Cleanup(c.Close)
	return c
}

type note struct {
	Text string `json:"text"`
}

func TestServicesAreCalledByTheirNameAndConnectionsUsedAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "checks.shop.svc", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		said := fmt.Sprintf("%s %s%s %s %s %s %s", r.Method, r.Host, r.URL, r.Proto, r.TLS.ServerName, r.Header.Get("Content-Type"), body)
		_ = json.NewEncoder(w).Encode(note{said})
	})
	c := caller(t, p)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 29500*time.Millisecond)
		var got note
		err := c.Post(ctx, hook.Config{Service: &hook.Service{Namespace: "shop", Name: "checks", Path: "/a"}, CABundle: p.ca}, note{"hello"}, &got)
		cancel()
		const want = `POST checks.shop.svc:443/a?timeout=30s HTTP/1.1 checks.shop.svc application/json {"text":"hello"}`
		if err != nil || got.Text != want {
			t.Fatalf("got %q, %v, want %q", got.Text, err, want)
		}
	}
	if n := p.conns.Load(); n != 1 {
		t.Errorf("got %d connections for three calls, want one", n)
	}
}

// Upstream's clients join paths, and the servers of many programs lead whoever asks for //check elsewhere.
func TestPathsAreAskedForInTheirShortestForm(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "127.0.0.1", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(note{r.URL.EscapedPath()})
	})
	c := caller(t, p)
	for path, want := range map[string]string{"": "/", "/": "/", "//check": "/check", "/check/": "/check", "/a/../check": "/check", "/a b": "/a%20b", "/a%20b": "/a%20b"} {
		var got note
		if err := c.Post(t.Context(), hook.Config{URL: p.URL + path, CABundle: p.ca}, note{}, &got); err != nil || got.Text != want {
			t.Errorf("%s: got %q, %v, want %q", path, got.Text, err, want)
		}
	}
}

func TestWhatGoesWrongIsSaid(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "checks.shop.svc", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			_, _ = io.Copy(io.Discard, r.Body) // or the server would not see that the client has gone
			<-r.Context().Done()
		case "/huge":
			_, _ = w.Write([]byte(`{"text":"` + strings.Repeat("x", hook.MaxAnswer) + `"}`))
		case "/elsewhere":
			http.Redirect(w, r, "/fine", http.StatusTemporaryRedirect)
		case "/text":
			http.Error(w, "out of order", http.StatusInternalServerError)
		case "/status":
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not you","reason":"Forbidden","code":403}`)
		case "/page":
			_, _ = io.WriteString(w, `<html>`)
		case "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"te`)
		}
	})
	other := newPlace(t, "other.shop.svc", func(http.ResponseWriter, *http.Request) {})
	c := caller(t, p)
	service := func(path string) hook.Config {
		return hook.Config{Service: &hook.Service{Namespace: "shop", Name: "checks", Path: path}, CABundle: p.ca}
	}
	for _, tc := range []struct {
		name string
		cfg  hook.Config
		want string // part of the error
		code int32
	}{
		{"hangs", service("/hang"), `Post "https://checks.shop.svc:443/hang?timeout=1s": context deadline exceeded`, 0},
		{"answers too much", service("/huge"), "the answer is longer than 16777216 bytes", 0},
		{"sends elsewhere", service("/elsewhere"), "the server responded with the status code 307 but did not return more information", 307},
		{"fails in its own words", service("/text"), `an error on the server ("out of order") has prevented the request from succeeding`, 500},
		{"refuses", service("/status"), "not you", 403},
		{"is not there", service("/none"), "read the answer", 0},
		{"is a page for people", service("/page"), "read the answer", 0},
		{"is cut off", service("/cut"), "read the answer: unexpected EOF", 0},
		{"is another service", hook.Config{Service: &hook.Service{Namespace: "shop", Name: "bills", Port: 8443}, CABundle: p.ca}, `Post "https://bills.shop.svc:8443/?timeout=30s": no endpoints available for service "bills"`, 0},
		{"has no certificate that is believed", hook.Config{Service: service("").Service}, "certificate signed by unknown authority", 0},
		{"has a certificate of somebody else", hook.Config{Service: service("").Service, CABundle: other.ca}, "certificate signed by unknown authority", 0},
		{"has a certificate of another name", hook.Config{URL: p.URL, CABundle: p.ca}, "cannot validate certificate for 127.0.0.1", 0},
		{"has no certificates to be believed by", hook.Config{URL: p.URL, CABundle: []byte("x")}, "unable to load root certificates: unable to parse bytes as PEM block", 0},
		{"is nowhere", hook.Config{}, "webhook configuration must have either service or URL", 0},
		{"cannot be parsed", hook.Config{URL: "https://a b"}, "Unparsable URL", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			patience := 30 * time.Second
			if tc.name == "hangs" {
				patience = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := c.Post(ctx, tc.cfg, note{}, &note{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want an error with %q", err, tc.want)
			}
			var status *apierrors.StatusError
			if errors.As(err, &status) != (tc.code != 0) || tc.code != 0 && status.ErrStatus.Code != tc.code {
				t.Errorf("got %#v, want code %d", err, tc.code)
			}
		})
	}
}

func TestWebhooksThatSayWhenAreAskedAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]int{}
	p := newPlace(t, "checks.shop.svc", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		asked[r.URL.Path]++
		n := asked[r.URL.Path]
		mu.Unlock()
		switch path := r.URL.Path; {
		case path == "/busy" && n < 3, path == "/never":
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		case path == "/down" && n < 2:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		case path == "/tomorrow":
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusServiceUnavailable)
		case path == "/silent":
			w.WriteHeader(http.StatusServiceUnavailable)
		case path == "/refuses":
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusForbidden)
		default:
			_, _ = w.Write(body)
		}
	})
	c := caller(t, p)
	for path, want := range map[string]struct {
		err   string // part of it; empty: there is an answer
		code  int32
		asked int
	}{
		"/busy": {"", 0, 3}, "/down": {"", 0, 2}, "/never": {"too many requests", 429, 11}, "/silent": {"currently unable to handle the request", 503, 1}, "/refuses": {"unknown", 403, 1},
		"/tomorrow": {"context deadline exceeded - error from a previous attempt: ", 503, 1},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			patience := 30 * time.Second
			if path == "/tomorrow" {
				patience = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var got note
			err := c.Post(ctx, hook.Config{Service: &hook.Service{Namespace: "shop", Name: "checks", Path: path}, CABundle: p.ca}, note{"hello"}, &got)
			var status *apierrors.StatusError
			switch {
			case want.err == "" && (err != nil || got.Text != "hello"):
				t.Errorf("got %q, %v, want an answer", got.Text, err)
			case want.err != "" && (err == nil || !strings.Contains(err.Error(), want.err) || !errors.As(err, &status) || status.ErrStatus.Code != want.code):
				t.Errorf("got %v, want %q with code %d", err, want.err, want.code)
			}
			mu.Lock()
			defer mu.Unlock()
			if asked[path] != want.asked {
				t.Errorf("asked %d times, want %d", asked[path], want.asked)
			}
		})
	}
}

func TestPoolsOfWebhooksThatNobodyCallsGo(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "127.0.0.1", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) })
	c := caller(t, p)
	for i := range 500 { // each believed in another way
		cfg := hook.Config{URL: p.URL, CABundle: append([]byte(fmt.Sprintf("# %d\n", i)), p.ca...)}
		if err := c.Post(t.Context(), cfg, note{}, &note{}); err != nil {
			t.Fatal(err)
		}
		if n := c.Kept(); n > 200 {
			t.Fatalf("got %d pools, want 200 at most", n)
		}
	}
}

// TestCertificatesThatAreOutOfDateAreCounted has webhooks with certificates that nobody believes any more.
func TestCertificatesThatAreOutOfDateAreCounted(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(of, by *x509.Certificate) []byte {
		der, err := x509.CreateCertificate(rand.Reader, of, by, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	leaf := *ca
	leaf.SerialNumber, leaf.Subject, leaf.IsCA, leaf.KeyUsage = big.NewInt(2), pkix.Name{CommonName: "checks.shop.svc"}, false, x509.KeyUsageDigitalSignature
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{signed(&leaf, ca)}, PrivateKey: key}}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	reg := prometheus.NewRegistry()
	c := hook.New(hook.Options{Registry: reg, Dial: func(ctx context.Context, _ hook.Service) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", srv.Listener.Addr().String())
	}})
	t.Cleanup(c.Close)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed(ca, ca)})
	var got note
	err = c.Post(t.Context(), hook.Config{Service: &hook.Service{Namespace: "shop", Name: "checks"}, CABundle: bundle}, note{}, &got)
	if err == nil || !strings.Contains(err.Error(), "x509: certificate relies on legacy Common Name field") {
		t.Errorf("got %v", err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		counts[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	if counts["apiserver_webhooks_x509_missing_san_total"] != 1 || counts["apiserver_webhooks_x509_insecure_sha1_total"] != 0 {
		t.Errorf("got %v", counts)
	}
}
