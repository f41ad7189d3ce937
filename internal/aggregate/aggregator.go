package aggregate

import (
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/apiserver/discovery"
	"github.com/kemudi/kemudi/internal/backend"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// Options of an Aggregator. Cache, API and Services are required.
type Options struct {
	// Cache returns the process's cache of a resource.
	Cache func(def *resource.Def) *cache.Cache
	// API is how APIServices are written. It is asked for when the first is.
	API func() client.Transport
	// Services finds the endpoints of services.
	Services *backend.Services
	// Certificate is by which other servers know this one, as [tls.Config] wants it; nil: they do not.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// Local are the group-versions that this server has, and a channel that is closed when they are
	// others. It is for Register alone.
	Local func() ([]Local, <-chan struct{})
	// UID is of this process, in requests that are handed on (G5).
	UID    string
	Logger *slog.Logger // nil: nothing is logged
	// Registry takes the metrics; nil: they are not shown.
	Registry *prometheus.Registry
	// Tracing makes spans of requests that are handed on, of which other servers are told; nil: there are none.
	Tracing *tracing.Provider
}

// Local is a group-version that this server has.
type Local struct {
	schema.GroupVersion
	// Custom says that it came while the server ran, and may go.
	Custom bool
}

// Aggregator makes other servers part of an API. Its methods may be called concurrently.
type Aggregator struct {
	o    Options
	log  *slog.Logger
	seen atomic.Pointer[table]
	lost *prometheus.CounterVec

	mu struct {
		sync.Mutex
		remotes map[string]*remote // by the names of APIServices
	}
}

// table is what is known of other servers at a time. It is read-only.
type table struct {
	byGV  map[schema.GroupVersion]route
	found *discovery.Others // nil: there are none
}

// route is where requests for a group-version go.
type route struct {
	*remote
	available bool
}

// New returns an aggregator that knows no other server before it runs.
func New(o Options) *Aggregator {
	a := &Aggregator{o: o, log: o.Logger, lost: newLost(o.Registry)}
	if o.Registry != nil {
		o.Registry.MustRegister(usable{o.Cache(apiregistration.APIServices.Def)})
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.mu.remotes = map[string]*remote{}
	a.seen.Store(&table{})
	return a
}

// Has reports whether another server has a group-version.
func (a *Aggregator) Has(gv schema.GroupVersion) bool {
	_, ok := a.seen.Load().byGV[gv]
	return ok
}

// Discovered is what there is on other servers, as far as it is known: another value when that has
// changed, nil while there are none.
func (a *Aggregator) Discovered() *discovery.Others { return a.seen.Load().found }

// Run follows the APIServices of other servers until ctx ends.
func (a *Aggregator) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	g.Go("other servers", func(ctx context.Context) error { return a.follow(ctx, g) })
	return g.Wait()
}

// publishLocked makes what is known of other servers what all see.
func (a *Aggregator) publishLocked() {
	t := &table{byGV: map[schema.GroupVersion]route{}}
	for _, r := range a.mu.remotes {
		t.byGV[r.gv] = route{r, r.state.available}
		if t.found == nil {
			t.found = &discovery.Others{}
		}
		t.found.Versions = append(t.found.Versions, discovery.Remote{
			GroupVersion: r.gv, Priority: r.state.priority, Resources: r.state.resources, Stale: r.state.stale,
			Document: r.state.document, Swagger: r.state.swagger,
		})
	}
	if t.found != nil {
		slices.SortFunc(t.found.Versions, func(a, b discovery.Remote) int { return strings.Compare(a.String(), b.String()) })
		if was := a.seen.Load().found; was.Equal(t.found) {
			t.found = was
		}
	}
	a.seen.Store(t)
}
