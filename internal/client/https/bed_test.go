package https_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// timeout bounds every wait of a test.
const timeout = time.Minute

// bed is an API server on etcd that can be restarted at its address.
type bed struct {
	*testing.T
	ctx    context.Context
	dir    string
	pki    *pki.PKI
	addr   string
	tokens tokens

	store  *etcd.Server
	server *apiserver.Server
	caches *watchcache.Set
	stop   func()
}

// tokens are those that the server believes.
type tokens struct {
	mu   sync.Mutex
	good map[string]string // users by token
}

func (k *tokens) set(good map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.good = good
}

// AuthenticateToken says whose token it is.
func (k *tokens) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name, ok := k.good[token]
	return &authenticator.Response{User: &user.DefaultInfo{Name: name, Groups: []string{user.SystemPrivilegedGroup}}}, ok, nil
}

func newBed(t *testing.T) *bed {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errors.New("the test's time is over"))
	t.Cleanup(cancel)
	b := &bed{T: t, ctx: ctx, dir: t.TempDir(), addr: "127.0.0.1:0"}
	var err error
	b.pki, err = pki.Ensure(pki.Options{Dir: b.dir})
	b.must(err)
	b.tokens.set(map[string]string{"good": "agent"})
	b.start()
	t.Cleanup(func() { b.stop() })
	_, err = client.For(b.local(), core.Namespaces).Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	b.must(err)
	return b
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// start starts etcd and API server at the address they had.
func (b *bed) start() {
	b.Helper()
	under := task.NewGroup(context.WithoutCancel(b.ctx)) // they end with stop, one after the other
	over := task.NewGroup(context.WithoutCancel(b.ctx))
	var err error
	b.store, err = etcd.New(etcd.Options{Dir: b.dir, Name: "bed", Log: slog.New(slog.DiscardHandler), NoSync: true})
	b.must(err)
	under.Go("etcd", b.store.Run)
	b.caches, err = watchcache.New(watchcache.Options{Store: &b.store.Store, Defs: api.All()})
	b.must(err)
	b.server, err = apiserver.New(apiserver.Options{
		Store: &b.store.Store, Defs: api.All(), Caches: b.caches,
		Authenticator: authn.New(authn.Options{ClientCA: b.pki.CA.Pool(), Tokens: []authenticator.Token{&b.tokens}, NoAnonymous: true}),
	})
	b.must(err)
	var l net.Listener
	for try := time.Now(); ; { // the system may need a moment to give the port back
		if l, err = net.Listen("tcp", b.addr); err == nil || time.Since(try) > timeout {
			break
		}
	}
	b.must(err)
	b.addr = l.Addr().String()
	over.Go("caches", b.caches.Run)
	over.Go("server", b.server.Run)
	over.Go("serve", func(ctx context.Context) error {
		return b.server.Serve(ctx, l, &tls.Config{GetCertificate: b.pki.ServingCertificate})
	})
	b.stop = sync.OnceFunc(func() {
		for _, g := range []*task.Group{over, under} {
			g.Cancel(context.Canceled)
			if err := g.Wait(); err != nil {
				b.Error(err)
			}
		}
	})
	select {
	case <-b.caches.Synced():
	case <-b.ctx.Done():
		b.Fatal(context.Cause(b.ctx))
	}
}

// local is the API within the server's process.
func (b *bed) local() client.Transport {
	return b.server.As(&user.DefaultInfo{Name: "local", Groups: []string{user.SystemPrivilegedGroup}}, "local")
}

// line is what connections go through: it can be cut.
type line struct {
	mu    sync.Mutex
	open  map[net.Conn]struct{}
	down  bool
	fails int // so many dials fail before the line is mended by itself; 0: for ever
}

var errDown = errors.New("the line is down")

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	down := l.down
	if l.fails > 0 {
		l.fails--
		l.down = l.fails > 0
	}
	l.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errDown}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[net.Conn]struct{}{}
	}
	l.open[conn] = struct{}{}
	return conn, nil
}

// cut closes what is open, and keeps the line down if asked to. It returns how
// many connections there were.
func (l *line) cut(down bool) int {
	l.mu.Lock()
	open := l.open
	l.open, l.down = nil, down
	l.mu.Unlock()
	for conn := range open {
		conn.Close()
	}
	return len(open)
}

// mendAfter mends the line when so many more dials have failed.
func (l *line) mendAfter(fails int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = fails
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// remote is the API as another machine sees it, by way of a line. change may
// alter the options.
func (b *bed) remote(l *line, change ...func(o *https.Options)) *https.Transport {
	b.Helper()
	o := https.Options{
		Servers: []string{"https://" + b.addr}, CA: b.pki.CA.CertPEM(), Agent: "agent", Dial: l.dial, PageSize: 7, Backoff: 2 * time.Millisecond,
		Token: func() (string, error) { return "good", nil },
	}
	for _, f := range change {
		f(&o)
	}
	return run(b.T, o)
}

// run runs a transport until the test ends.
func run(t *testing.T, o https.Options) *https.Transport {
	t.Helper()
	tr, err := https.New(o)
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("remote", tr.Run)
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

// fake is a server that answers as the test says.
func fake(t *testing.T, h http.HandlerFunc) https.Options {
	t.Helper()
	p, err := pki.Ensure(pki.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{
		Handler: h, TLSConfig: &tls.Config{GetCertificate: p.ServingCertificate}, ReadHeaderTimeout: timeout,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.ServeTLS(l, "", "") }) // it ends with Close
	t.Cleanup(func() {
		srv.Close()
		wg.Wait()
	})
	return https.Options{Servers: []string{"https://" + l.Addr().String()}, CA: p.CA.CertPEM(), Backoff: 2 * time.Millisecond}
}
