package https

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// Transport carries requests to an API server on another machine. Its caches
// are fed while Run runs.
type Transport struct {
	*link
	agent string
}

var _ client.Transport = (*Transport)(nil)

// link is what the transports of one process to one server share.
type link struct {
	o     Options
	base  *url.URL
	http  *http.Client
	conns connections

	mu struct {
		sync.Mutex
		shown *tls.Certificate // the client certificate last used
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
	o, base, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	config, err := o.tls()
	if err != nil {
		return nil, err
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	l := &link{o: o, base: base, conns: connections{dial: o.Dial}, wake: make(chan struct{}, 1)}
	l.mu.feeds = map[feedKey]*feed{}
	l.http = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: l.conns.dialTracked, TLSClientConfig: config, TLSHandshakeTimeout: handshakeTimeout,
			ForceAttemptHTTP2: true, IdleConnTimeout: idleTimeout,
			// For watches: whatever else is asked has ended by then, and says why.
			ResponseHeaderTimeout: o.RequestTimeout + handshakeTimeout,
			DisableCompression:    true, // within a cluster bytes are cheaper than the servers' time
			HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		},
	}
	return &Transport{link: l, agent: o.Agent}, nil
}

// As returns the same connection and caches under the name of another client.
func (t *Transport) As(agent string) *Transport { return &Transport{link: t.link, agent: agent} }

// Cache returns the cache of what is in the scope, one for each scope. It is
// fed while Run runs.
func (t *Transport) Cache(def *resource.Def, scope string) *cache.Cache {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := feedKey{def, scope}
	f := t.mu.feeds[key]
	if f == nil {
		f = newFeed(t, def, scope)
		t.mu.feeds[key] = f
		t.mu.added = append(t.mu.added, f)
		select {
		case t.wake <- struct{}{}:
		default: // there is one already
		}
	}
	return f.cache
}

// forgetEvery is how often caches forget changes that nobody will read any more.
const forgetEvery = 5 * time.Minute

// Run feeds the caches until ctx ends. It may be called again, but not twice at
// the same time. Caches keep what they show when it has returned.
func (t *Transport) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	t.mu.Lock()
	running := slices.Collect(maps.Values(t.mu.feeds))
	t.mu.added = nil
	t.mu.Unlock()
	begin := func(feeds []*feed) {
		for _, f := range feeds {
			g.Go("feed "+f.def.String(), f.run)
		}
	}
	begin(running)
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
				running = append(running, added...)
			case <-forget.C:
				for _, f := range running {
					f.cache.Trim()
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
	err := g.Wait()
	t.conns.closeAll()
	return err
}

// Do performs one request.
func (t *Transport) Do(ctx context.Context, r *client.Request) (runtime.Object, error) {
	if r.Path != "" {
		return t.raw(ctx, r.Path)
	}
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
