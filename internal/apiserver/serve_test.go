package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/door"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/watchcache"
	"github.com/kemudi/kemudi/test/wait"
)

func TestServeEndsWatchesWhenItIsToldToStop(t *testing.T) {
	f := newFixture(t)
	f.url() // lends its certificate
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("serve", func(ctx context.Context) error {
		return f.Serve(ctx, l, &tls.Config{Certificates: f.http.TLS.Certificates})
	})
	for _, http2 := range []bool{true, false} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: http2}
		defer transport.CloseIdleConnections()
		c := &http.Client{Transport: transport}
		res, err := c.Get("https://" + l.Addr().String() + "/api/v1/namespaces?watch=1")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if want := map[bool]int{true: 2, false: 1}[http2]; res.ProtoMajor != want {
			t.Errorf("got HTTP/%d, want %d", res.ProtoMajor, want)
		}
		f.must(201, "POST", "/api/v1/namespaces", map[bool]string{true: `{"metadata":{"name":"a"}}`, false: `{"metadata":{"name":"b"}}`}[http2])
		line, err := bufio.NewReader(res.Body).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, `{"type":"ADDED","object":{"kind":"Namespace","apiVersion":"v1",`) {
			t.Errorf("event: %v %s", err, line)
		}
		if http2 {
			continue
		}
		f.must(200, "GET", "/readyz/shutdown", "")
		g.Cancel(context.Canceled)
		// It ends after what was under way, or the test never does.
		_, _ = io.Copy(io.Discard, res.Body)
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if got := f.must(500, "GET", "/readyz/shutdown", ""); !strings.Contains(got, "process is shutting down") {
		t.Errorf("readiness of a server that stops: got %s", got)
	}
}

// TestManyConnectionsOfStrangersLockNobodyOut opens connections that say nothing,
// and that ask as nobody, from the address of a node: it keeps its own, and gets more.
func TestManyConnectionsOfStrangersLockNobodyOut(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.Authenticator = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			if r.Header.Get("Authorization") != "Bearer node" {
				return nil, false, nil
			}
			return &authenticator.Response{User: &user.DefaultInfo{Name: "system:node:n", Groups: []string{user.NodesGroup}}}, true, nil
		})
	})
	const most = 40
	f.door = door.New(most, slog.New(slog.DiscardHandler))
	f.url() // lends its certificate
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("serve", func(ctx context.Context) error {
		return f.Serve(ctx, l, &tls.Config{Certificates: f.http.TLS.Certificates})
	})
	ask := func(http2 bool, query string) *http.Response {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: http2}
		t.Cleanup(transport.CloseIdleConnections)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String()+"/api/v1/namespaces"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer node")
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	watches := []*http.Response{ask(true, "?watch=1"), ask(false, "?watch=1")}
	var strangers []net.Conn
	for range 10 * most {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		strangers = append(strangers, c)
	}
	for i, c := range strangers[:9*most] { // the last ones may wait for the server to accept them
		if err := c.SetReadDeadline(time.Now().Add(wait.Patience)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("stranger %d of %d: got %d bytes, %v; want an end", i, len(strangers), n, err)
		}
	}
	for range most {
		res := ask(true, "")
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("a new connection of the node: got %d, %v", res.StatusCode, err)
		}
		res.Body.Close()
	}
	if _, err := client.For(f.As(admin, "test"), core.Namespaces).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	for _, res := range watches {
		line, err := bufio.NewReader(res.Body).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, `{"type":"ADDED"`) {
			t.Errorf("event of a watch over HTTP/%d: %v %s", res.ProtoMajor, err, line)
		}
		res.Body.Close()
	}
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func TestWhoAsksIsReadFromTheClientCertificate(t *testing.T) {
	seen := make(chan bool, 1)
	f := newFixture(t, func(o *Options) {
		o.Authenticator = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			seen <- r.TLS != nil && len(r.TLS.PeerCertificates) == 1
			return &authenticator.Response{User: &user.DefaultInfo{Name: "n"}}, true, nil
		})
	})
	f.url()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("serve", func(ctx context.Context) error {
		return f.Serve(ctx, l, &tls.Config{Certificates: f.http.TLS.Certificates})
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: f.http.TLS.Certificates}}
	res, err := (&http.Client{Transport: transport}).Get("https://" + l.Addr().String() + "/version")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if !<-seen {
		t.Error("the authenticator saw no client certificate")
	}
	transport.CloseIdleConnections()
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func TestServersOfOneStoreNeverGiveAnAddressTwice(t *testing.T) {
	trace.Proves(t, "SVC-170")
	st := newStore(t)
	small := func(o *Options) {
		o.Store, o.Shared, o.Settings = st, true, map[string]string{core.FlagServiceCIDR: "10.96.0.0/27"}
	}
	servers := []*fixture{newFixture(t, small), newFixture(t, small)}
	address := regexp.MustCompile(`"clusterIP":"([0-9.]+)"`)
	var wg sync.WaitGroup
	var mu sync.Mutex
	given, refused := map[string]int{}, 0
	for i := range 40 { // of 30 addresses
		wg.Go(func() {
			w := servers[i%2].ask("POST", "/api/v1/namespaces/default/services", fmt.Sprintf(`{"metadata":{"name":"s%d"},"spec":{"ports":[{"port":80}]}}`, i))
			mu.Lock()
			defer mu.Unlock()
			switch ip := address.FindStringSubmatch(w.Body.String()); {
			case w.Code == http.StatusCreated && ip != nil:
				given[ip[1]]++
			case w.Code == http.StatusInternalServerError && strings.Contains(w.Body.String(), "failed to allocate a serviceIP: range is full"):
				refused++
			default:
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
	wg.Wait()
	if len(given) != 30 || refused != 10 {
		t.Errorf("got %d addresses (%v) and %d refusals, want 30 and 10", len(given), given, refused)
	}
}

func TestAllocationsThatNothingUsesAreGivenUp(t *testing.T) {
	trace.Proves(t, "SVC-172", "SVC-174")
	f := newFixture(t)
	const services = "/api/v1/namespaces/default/services"
	named := func(name, ip string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"clusterIP":"` + ip + `","ports":[{"port":80}]}}`
	}
	f.must(201, "POST", services, named("gone", "10.96.0.77"))
	f.must(201, "POST", services, named("stays", "10.96.0.78"))
	// Somebody deletes one behind the server's back.
	f.behind(store.Op{Key: "/registry/services/specs/default/gone"})
	// The server may have looked already, if it came to that late.
	if err := f.writes.Repair(t.Context(), f.o.Defs); err != nil {
		t.Fatal(err)
	}
	f.must(201, "POST", services, named("new", "10.96.0.77"))
	f.must(422, "POST", services, named("other", "10.96.0.78"))
}

func TestAllocationsOfObjectsFromElsewhereAreMade(t *testing.T) {
	trace.Proves(t, "SVC-172", "SVC-173")
	log := &lockedLog{}
	f := newFixture(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	var rev int64
	for _, name := range []string{"old", "twin"} {
		value, err := watchcache.Encode(core.Services.Def, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "u"},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.77", ClusterIPs: []string{"10.96.0.77"}, Ports: []corev1.ServicePort{{Port: 80}},
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.store.Txn(t.Context(), store.Txn{Ops: []store.Op{{Key: "/registry/services/specs/default/" + name, Value: value}}})
		if err != nil {
			t.Fatal(err)
		}
		rev = res.Rev
	}
	c := f.o.Caches.Cache(core.Services.Def)
	if err := c.WaitRev(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	if err := f.writes.Repair(t.Context(), f.o.Defs); err != nil {
		t.Fatal(err)
	}
	got := f.must(422, "POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"new"},"spec":{"clusterIP":"10.96.0.77","ports":[{"port":80}]}}`)
	if !strings.Contains(got, "provided IP is already allocated") {
		t.Errorf("got %s", got)
	}
	if got := log.String(); !strings.Contains(got, "key=default/twin") || !strings.Contains(got, "provided IP is already allocated") {
		t.Errorf("log: got %s, want that the address of twin is another's", got)
	}
}

// lockedLog is a log in memory.
type lockedLog struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.Buffer.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.Buffer.String()
}
