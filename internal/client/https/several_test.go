package https_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
	"github.com/kemudi/kemudi/test/wait"
)

// several is a cluster of API servers over one store in memory.
type several struct {
	bed
	mem    store.Store
	member []*member
	net    network
}

// member is one of the servers.
type member struct {
	server *apiserver.Server
	feed   *feedGate
	addr   string
	stop   func() // cleanly
}

func newSeveral(t *testing.T, n int) *several {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), wait.Patience, errors.New("the test's time is over"))
	t.Cleanup(cancel)
	s := &several{bed: bed{T: t, ctx: ctx}, mem: mem.New(mem.Options{})}
	var err error
	s.pki, err = pki.Ensure(pki.Options{Dir: t.TempDir()})
	s.must(err)
	s.tokens.set(map[string]string{"good": "agent"})
	for range n {
		s.member = append(s.member, s.startMember())
	}
	s.server = s.member[0].server
	_, err = client.For(s.local(), core.Namespaces).Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	s.must(err)
	return s
}

func (s *several) startMember() *member {
	s.Helper()
	m := &member{feed: &feedGate{Store: s.mem}}
	g := task.NewGroup(context.WithoutCancel(s.ctx))
	caches, err := watchcache.New(watchcache.Options{Store: m.feed, Defs: api.All()})
	s.must(err)
	m.server, err = apiserver.New(apiserver.Options{
		Store: m.feed, Shared: true, Defs: api.All(), Caches: caches,
		Authenticator: authn.New(authn.Options{ClientCA: s.pki.CA.Pool(), Tokens: []authenticator.Token{&s.tokens}, NoAnonymous: true}),
	})
	s.must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	m.addr = l.Addr().String()
	over := task.NewGroup(context.WithoutCancel(s.ctx))
	g.Go("caches", caches.Run)
	g.Go("server", m.server.Run)
	over.Go("serve", func(ctx context.Context) error {
		return m.server.Serve(ctx, l, &tls.Config{GetCertificate: s.pki.ServingCertificate})
	})
	m.stop = sync.OnceFunc(func() {
		m.feed.set(nil)
		for _, g := range []*task.Group{over, g} {
			g.Cancel(context.Canceled)
			if err := g.Wait(); err != nil {
				s.Error(err)
			}
		}
	})
	s.Cleanup(m.stop)
	select {
	case <-caches.Synced():
	case <-s.ctx.Done():
		s.Fatal(context.Cause(s.ctx))
	}
	return m
}

// feedGate is the store as one server has it, whose feed can be held up.
type feedGate struct {
	store.Store
	mu   sync.Mutex
	held chan struct{} // closed when the feed goes on; nil: it does
}

func (f *feedGate) set(held chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held != nil {
		close(f.held)
	}
	f.held = held
}

// Watch follows the store, when it may.
func (f *feedGate) Watch(ctx context.Context, prefix string, after int64, fn func([]store.Change, int64) error) error {
	return f.Store.Watch(ctx, prefix, after, func(changes []store.Change, progress int64) error {
		f.mu.Lock()
		held := f.held
		f.mu.Unlock()
		if held != nil {
			select {
			case <-held:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return fn(changes, progress)
	})
}

// urls are where the servers are.
func (s *several) urls() (list []string) {
	for _, m := range s.member {
		list = append(list, "https://"+m.addr)
	}
	return list
}

// client is a transport that knows all servers.
func (s *several) client(change ...func(o *https.Options)) *https.Transport {
	s.Helper()
	o := https.Options{
		Servers: s.urls(), CA: s.pki.CA.CertPEM(), Agent: "agent", Dial: s.net.dial, PageSize: 7,
		Token: func() (string, error) { return "good", nil }, Logger: slog.New(slog.NewTextHandler(s.Output(), nil)),
	}
	for _, f := range change {
		f(&o)
	}
	return run(s.T, o)
}

// used waits until connections are open to one server alone, and returns it: those to one that was left may end a
// moment after others have begun.
func (s *several) used() *member {
	s.Helper()
	var open []string
	wait.Until(s, func() error {
		if open = s.net.openTo(); len(open) != 1 {
			return fmt.Errorf("connections are open to %v, want one server", open)
		}
		return nil
	})
	return s.member[slices.IndexFunc(s.member, func(m *member) bool { return m.addr == open[0] })]
}

// network is what lies between a client and the servers.
type network struct {
	mu    sync.Mutex
	open  map[*cable]struct{}
	cut   map[string]bool          // addresses that refuse
	hung  map[string]chan struct{} // addresses that swallow everything, until it is closed
	dials map[string]int
}

func (n *network) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	n.mu.Lock()
	if n.dials == nil {
		n.open, n.cut, n.hung, n.dials = map[*cable]struct{}{}, map[string]bool{}, map[string]chan struct{}{}, map[string]int{}
	}
	n.dials[address]++
	cut, hung := n.cut[address], n.hung[address]
	n.mu.Unlock()
	if cut {
		return nil, &net.OpError{Op: "dial", Net: kind, Err: errDown}
	}
	if hung != nil {
		select {
		case <-hung:
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: kind, Err: context.Cause(ctx)}
		}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, kind, address)
	if err != nil {
		return nil, err
	}
	c := &cable{Conn: conn, n: n, address: address, closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open[c] = struct{}{}
	return c, nil
}

// down has an address refuse connections and closes those that are open, or mends that.
func (n *network) down(address string, down bool) {
	n.mu.Lock()
	n.cut[address] = down
	var open []*cable
	for c := range n.open {
		if down && c.address == address {
			open = append(open, c)
		}
	}
	n.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

// hang has an address swallow everything, or mends that.
func (n *network) hang(address string, hang bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.hung[address]; old != nil {
		close(old)
		delete(n.hung, address)
	}
	if hang {
		n.hung[address] = make(chan struct{})
	}
}

// openTo are the addresses to which connections are open.
func (n *network) openTo() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []string
	for c := range n.open {
		list = append(list, c.address)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (n *network) dialed(address string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials[address]
}

// cable is one connection.
type cable struct {
	net.Conn
	n       *network
	address string
	once    sync.Once
	closed  chan struct{}
}

// pass waits while the address hangs.
func (c *cable) pass() error {
	c.n.mu.Lock()
	hung := c.n.hung[c.address]
	c.n.mu.Unlock()
	if hung == nil {
		return nil
	}
	select {
	case <-hung:
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

func (c *cable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if hung := c.pass(); hung != nil {
		return 0, hung
	}
	return n, err
}

func (c *cable) Write(p []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *cable) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.n.mu.Lock()
		delete(c.n.open, c)
		c.n.mu.Unlock()
	})
	return c.Conn.Close()
}
