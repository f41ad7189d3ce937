package https

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// Transport carries requests to the API servers of a cluster, on other machines. Its
// caches are fed while Run runs, and servers that hang are left.
type Transport struct {
	*link
	agent string
	token func(ctx context.Context) (string, error) // in place of the link's; nil: that
}

var _ client.Transport = (*Transport)(nil)

// link is what the transports of one process to one cluster share.
type link struct {
	o       Options
	servers servers
	config  *tls.Config
	conns   connections
	roots   func() (*x509.CertPool, error) // of a file; nil: those of config
	memory  *memory                        // nil: there is none
	metrics *metrics

	mu struct {
		sync.Mutex
		http  *http.Client     // always the same if there is no client certificate
		shown *tls.Certificate // the client certificate that http has used last
		roots *x509.CertPool   // the authorities that it believes; nil: those of config
		feeds map[feedKey]*feed
		added []*feed // those that Run has not seen
	}
	wake chan struct{} // holds a token while added may be non-empty
}

type feedKey struct {
	def   *resource.Def
	scope string
}

// New returns a transport, which connects when it is used.
func New(o Options) (*Transport, error) {
	o = o.withDefaults()
	list, err := parseServers(o.Servers)
	if err != nil {
		return nil, fmt.Errorf("https options: %w", err)
	}
	config, err := o.tls()
	if err != nil {
		return nil, err
	}
	l := &link{o: o, config: config, metrics: newMetrics(), conns: connections{dial: o.Dial, began: time.Now()}, wake: make(chan struct{}, 1)}
	l.servers.init(list, o.Backoff)
	l.mu.feeds = map[feedKey]*feed{}
	if o.CAFile != "" {
		l.roots = Authorities(o.CAFile)
		if l.mu.roots, err = l.roots(); err != nil {
			return nil, fmt.Errorf("https options: %w", err)
		}
	}
	l.mu.http = l.newHTTP()
	if o.Memory != nil {
		if l.memory, err = newMemory(l); err != nil {
			return nil, err
		}
	}
	return &Transport{link: l, agent: o.Agent}, nil
}

// newHTTP returns a client without connections. Nobody else must use what the lock guards.
func (l *link) newHTTP() *http.Client {
	config := l.config.Clone()
	if l.mu.roots != nil {
		config.RootCAs = l.mu.roots
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: l.o.Tracing.Client(&http.Transport{
			DialContext: l.conns.dialTracked, TLSClientConfig: config, TLSHandshakeTimeout: handshakeTimeout,
			ForceAttemptHTTP2: true, IdleConnTimeout: idleTimeout,
			// For watches: whatever else is asked has ended by then, and says why.
			ResponseHeaderTimeout: l.o.RequestTimeout + handshakeTimeout,
			DisableCompression:    true, // within a cluster bytes are cheaper than the servers' time
			HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		}),
	}
}

// As returns the same connection and caches under the name of another client.
func (t *Transport) As(agent string) *Transport {
	return &Transport{link: t.link, agent: agent, token: t.token}
}

// Bearing returns the same connection for another client and user, whose token is asked for
// with each request. Caches are filled as before: by the user of the options.
func (t *Transport) Bearing(agent string, token func(ctx context.Context) (string, error)) *Transport {
	return &Transport{link: t.link, agent: agent, token: token}
}

// SetServers says where the API servers are from now on. The one that is in use stays
// so if it is still among them.
func (t *Transport) SetServers(urls []string) error {
	list, err := parseServers(urls)
	if err != nil {
		return fmt.Errorf("set the API servers: %w", err)
	}
	t.servers.set(list)
	return nil
}

// Server is the URL of the one that is asked now.
func (t *Transport) Server() string {
	t.servers.mu.Lock()
	defer t.servers.mu.Unlock()
	return t.servers.mu.now.base
}

// Cache returns the cache of what is in the scope, one for each scope. It is
// fed while Run runs.
func (t *Transport) Cache(def *resource.Def, scope string) *cache.Cache {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.feedLocked(feedKey{def, scope})
	f.use.kept = true
	return f.cache
}

// Hold returns the cache of what is in the scope, which is fed until it has been released.
func (t *Transport) Hold(def *resource.Def, scope string) (c *cache.Cache, release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := feedKey{def, scope}
	f := t.feedLocked(key)
	f.use.holders++
	return f.cache, sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if f.use.holders--; f.use.holders > 0 || f.use.kept {
			return
		}
		delete(t.mu.feeds, key)
		f.use.released = true
		if t.memory != nil {
			t.memory.forget(f)
		}
		if f.use.end != nil {
			f.use.end(errReleased)
		}
	})
}

// feedLocked returns the feed of a scope, and has it begun.
func (t *Transport) feedLocked(key feedKey) *feed {
	f := t.mu.feeds[key]
	if f == nil {
		f = newFeed(t, key.def, key.scope)
		t.mu.feeds[key] = f
		t.mu.added = append(t.mu.added, f)
		select {
		case t.wake <- struct{}{}:
		default: // there is one already
		}
	}
	return f
}

// forgetEvery is how often caches forget changes that nobody will read any more.
const forgetEvery = 5 * time.Minute

// Run feeds the caches until ctx ends. It may be called again, but not twice at
// the same time. Caches keep what they show when it has returned.
func (t *Transport) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	t.mu.Lock()
	feeds := slices.Collect(maps.Values(t.mu.feeds))
	t.mu.added = nil
	t.mu.Unlock()
	begin := func(feeds []*feed) {
		for _, f := range feeds {
			g.Go("feed "+f.def.String(), f.run)
		}
	}
	begin(feeds)
	g.Go("servers", t.look)
	memory := task.NewGroup(context.WithoutCancel(ctx)) // which ends last: what the feeds have heard is written
	if t.memory != nil {
		memory.Go("memory", t.memory.run)
	}
	stop := context.AfterFunc(memory.Context(), func() { g.Cancel(context.Cause(memory.Context())) })
	defer stop()
	g.Go("feeds", func(ctx context.Context) error {
		forget := time.NewTicker(forgetEvery)
		defer forget.Stop()
		for {
			select {
			case <-t.wake:
				t.mu.Lock()
				added := t.mu.added
				t.mu.added = nil
				t.mu.Unlock()
				begin(added)
			case <-forget.C:
				t.mu.Lock()
				feeds := slices.Collect(maps.Values(t.mu.feeds))
				t.mu.Unlock()
				for _, f := range feeds {
					f.cache.Trim()
				}
				if t.memory != nil {
					t.memory.tidy(feeds)
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
	err := g.Wait()
	closeAll(t.conns.take())
	memory.Cancel(context.Canceled)
	return cmp.Or(err, memory.Wait())
}

// Do performs one request.
func (t *Transport) Do(ctx context.Context, r *client.Request) (runtime.Object, error) {
	if r.Path != "" {
		return t.raw(ctx, r.Path)
	}
	if t.memory.remembers(r) {
		return t.get(ctx, r)
	}
	if t.memory != nil && r.Verb == "delete" { // once it is gone, an older state must not bring it back
		t.memory.flush(ctx, r.Def)
	}
	return t.do(ctx, r)
}

// do sends one request.
func (t *Transport) do(ctx context.Context, r *client.Request) (runtime.Object, error) {
	c, err := t.encode(r)
	if err != nil {
		return nil, err
	}
	a, err := t.ask(ctx, c)
	if err != nil {
		return nil, err
	}
	return a.object(r)
}

// raw sends a GET for a path, and returns the bytes of the answer.
func (t *Transport) raw(ctx context.Context, path string) (runtime.Object, error) {
	u, err := url.Parse(path)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	a, err := t.ask(ctx, &call{method: http.MethodGet, path: u.EscapedPath(), query: u.Query(), accept: mediaJSON, verb: "get"})
	if err != nil {
		return nil, err
	}
	return &runtime.Unknown{Raw: a.body, ContentType: runtime.ContentTypeJSON}, nil
}

// List performs a list.
func (t *Transport) List(ctx context.Context, r *client.Request) (client.List, error) {
	c, err := t.listCall(place{r.Def, r.Namespace}, &r.List)
	if err != nil {
		return client.List{}, err
	}
	a, err := t.ask(ctx, c)
	if err != nil {
		return client.List{}, err
	}
	return a.list(r.Def)
}
