package apiserver

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/discovery"
	"github.com/kemudi/kemudi/internal/apiserver/h2"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// admin is who all requests of the tests come from, unless a test says otherwise.
var admin = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

// fixture is an API server on a memory store.
type fixture struct {
	*Server
	store store.Store
	over  bool // ask goes over HTTPS as well
	tb    testing.TB

	listen sync.Once
	http   *httptest.Server // TLS, HTTP/2; made by the first use of url or config
}

// everyVersion serves what is off by default, too.
func everyVersion(o *Options) {
	o.RuntimeConfig = map[string]bool{"scheduling.k8s.io/v1alpha3": true, "scheduling.k8s.io/v1beta1": true, "settings.k8s.io/v1alpha1": true, "coordination.k8s.io/v1beta1": true, "coordination.k8s.io/v1alpha2": true}
}

// newFixture starts a server with the built-in resources; change may alter its options.
func newFixture(tb testing.TB, change ...func(o *Options)) *fixture {
	tb.Helper()
	o := Options{Defs: api.All(), Authenticator: always(admin)}
	for _, f := range change {
		f(&o)
	}
	if o.Store == nil {
		o.Store = newStore(tb)
	}
	var s *Server
	set, err := watchcache.New(watchcache.Options{
		Store: o.Store, Defs: o.Defs,
		Others: func(changes []store.Change, rev int64) { s.Told(changes, rev) }, Missed: func(rev int64) { s.Missed(rev) },
	})
	if err != nil {
		tb.Fatal(err)
	}
	o.Caches = set
	s, err = New(o)
	if err != nil {
		tb.Fatal(err)
	}
	g := task.NewGroup(tb.Context())
	g.Go("caches", set.Run)
	g.Go("server", s.Run)
	fixture := &fixture{Server: s, store: o.Store, over: isReal(tb), tb: tb}
	tb.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			tb.Error(err)
		}
		if _, timed := tb.(*testing.B); !timed {
			fixture.holdCachesAgainstStore()
		}
	})
	return fixture
}

// isReal tells whether a test is about a server with the store and the sockets of a
// real one.
func isReal(tb testing.TB) bool { return strings.HasPrefix(tb.Name(), onEtcd) }

// newStore is an empty store of the kind that the test is about.
func newStore(tb testing.TB) store.Store {
	tb.Helper()
	if isReal(tb) {
		return newEtcd(tb, tb.TempDir())
	}
	return mem.New(mem.Options{})
}

// newEtcd runs an etcd that does not wait for the disk.
func newEtcd(tb testing.TB, dir string) store.Store {
	tb.Helper()
	return runEtcd(tb, etcd.Options{Dir: dir, NoSync: true})
}

func runEtcd(tb testing.TB, o etcd.Options) store.Store {
	tb.Helper()
	o.Name, o.Log = "suite", slog.New(slog.DiscardHandler)
	st, err := etcd.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	g := task.NewGroup(context.WithoutCancel(tb.Context())) // until the cleanup: it outlives what uses it
	g.Go("etcd", st.Run)
	tb.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			tb.Error(err)
		}
	})
	select {
	case <-st.Ready():
	case <-g.Context().Done():
		tb.Fatal(context.Cause(g.Context()))
	}
	return &st.Store
}

func always(u user.Info) authenticator.Request {
	return authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: u}, true, nil
	})
}

// url is the address of the server, which listens from the first call on.
func (f *fixture) url() string {
	f.listen.Do(func() {
		f.http = httptest.NewUnstartedServer(f.Handler())
		f.http.EnableHTTP2 = true
		f.http.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate(f.tb)}}
		f.http.Config.TLSConfig = f.http.TLS
		if err := h2.Configure(f.http.Config, h2.Options{Pace: f.pace}); err != nil { // as Serve does
			f.tb.Fatal(err)
		}
		f.http.Listener = h2.Listener{Listener: f.http.Listener}
		f.http.StartTLS()
		f.tb.Cleanup(func() {
			f.http.CloseClientConnections()
			f.http.Close()
		})
	})
	return f.http.URL
}

// certificate is one of the kind that a cluster has: that of httptest has an RSA
// key, whose signatures are most of what a connection costs.
func certificate(tb testing.TB) tls.Certificate {
	tb.Helper()
	authority, err := pki.NewAuthority("suite")
	if err != nil {
		tb.Fatal(err)
	}
	pair, err := authority.Issue(pki.Subject{Name: "server", Hosts: []string{"127.0.0.1", "::1", "localhost"}, Server: true})
	if err != nil {
		tb.Fatal(err)
	}
	return pair.TLS()
}

// config is how client-go reaches the server.
func (f *fixture) config() *rest.Config {
	return &rest.Config{
		Host: f.url(), TLSClientConfig: rest.TLSClientConfig{Insecure: true}, UserAgent: "suite/1.0", QPS: -1,
	}
}

// ask sends a request straight to the handler. headers are "Name: value".
func (f *fixture) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	f.tb.Helper()
	r := httptest.NewRequestWithContext(f.tb.Context(), method, path, strings.NewReader(body))
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	if !f.over {
		f.Handler().ServeHTTP(w, r)
		return w
	}
	url, client := f.url(), *f.http.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r.RequestURI, r.Host = "", ""
	var err error
	if r.URL, err = r.URL.Parse(url + r.URL.String()); err != nil {
		f.tb.Fatal(err)
	}
	res, err := client.Do(r)
	if err != nil {
		f.tb.Fatal(err)
	}
	defer res.Body.Close()
	maps.Copy(w.Header(), res.Header)
	w.WriteHeader(res.StatusCode)
	if _, err := io.Copy(w, res.Body); err != nil {
		f.tb.Fatal(err)
	}
	return w
}

// behind writes to the store behind the server's back, and waits until the cache of Services has seen that.
func (f *fixture) behind(ops ...store.Op) {
	f.tb.Helper()
	res, err := f.store.Txn(f.tb.Context(), store.Txn{Ops: ops})
	if err != nil {
		f.tb.Fatal(err)
	}
	if err := f.o.Caches.Cache(core.Services.Def).WaitRev(f.tb.Context(), res.Rev); err != nil {
		f.tb.Fatal(err)
	}
}

// must is ask for a request that has to succeed with the code.
func (f *fixture) must(code int, method, path, body string, headers ...string) string {
	f.tb.Helper()
	w := f.ask(method, path, body, headers...)
	got, _ := io.ReadAll(w.Body)
	if w.Code != code {
		f.tb.Fatalf("%s %s: got %d %s, want %d", method, path, w.Code, got, code)
	}
	return string(got)
}

// another is another server, which has the group-version of.another/v1.
type another func(w http.ResponseWriter, r *http.Request)

func (a another) Has(gv schema.GroupVersion) bool { return gv.Group == "of.another" }

func (a another) Serve(w http.ResponseWriter, r *http.Request, _ schema.GroupVersion, _ user.Info) {
	a(w, r)
}

func (a another) Discovered() *discovery.Others { return nil }
