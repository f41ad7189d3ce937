package apiserver

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/flowcontrol"
	"github.com/kemudi/kemudi/internal/apiserver/budget"
	"github.com/kemudi/kemudi/internal/apiserver/door"
	"github.com/kemudi/kemudi/internal/apiserver/encoded"
	"github.com/kemudi/kemudi/internal/apiserver/flow"
	"github.com/kemudi/kemudi/internal/apiserver/h2"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/apiserver/write"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/patch"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
)

// Server is the API of one process. All methods may be called concurrently.
type Server struct {
	o          Options
	log        *slog.Logger
	routes     atomic.Pointer[routes]
	everywhere atomic.Pointer[everywhere]
	reads      *read.Reader
	writes     *write.Pipeline
	encoded    *encoded.Store
	memory     *budget.Memory
	metrics    *metrics
	handlers   handlers
	handler    http.Handler
	pace       *h2.Pace     // of the watches; nil: they do not rest
	door       *door.Keeper // who has a connection
	began      time.Time
	flows      *flow.Control

	// allocated is closed when the allocations fit the objects, stopping is set when the
	// server has been told to stop.
	allocated chan struct{}
	stopping  atomic.Bool
}

// New returns a server of o.Defs over o.Store.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		o: o, log: o.Logger, reads: &read.Reader{Store: o.Store, Stored: o.Caches, Sources: o.Sources},
		encoded: encoded.New(o.EncodedBytes), memory: budget.New(), metrics: newMetrics(o.Registry),
		door:      door.New(door.Room(), o.Logger),
		began:     time.Now(),
		flows:     flow.New(flow.Options{Seats: o.MaxReads + o.MaxWrites, Wait: o.RequestTimeout / 4, Registry: o.Registry}),
		allocated: make(chan struct{}),
	}
	s.reads.Took = s.metrics.stored
	if o.Shared {
		s.Share()
	}
	if !o.FrameByFrame {
		s.pace = &h2.Pace{}
	}
	counts := newGiven(s)
	s.writes = write.New(write.Options{
		Store: o.Store, Caches: o.Caches, Reads: s.reads, Admission: o.Admission, Authorize: s.authorize, Settings: o.Settings, Defs: o.Defs, Serves: s.Serves, Logger: o.Logger,
		Encrypted: o.Encrypted, Kept: o.Kept, Count: counts.count, Unmended: counts.unmended.Inc,
	})
	s.handlers = s.newHandlers()
	s.addChecks()
	s.SetDefs(o.Defs)
	o.Registry.MustRegister(append(counts.collectors(), caches{s})...)
	s.handler = s.filters(s.mux())
	return s, nil
}

// SetDefs changes what is served: the built-in resources and those of custom
// resource definitions. Requests in flight finish with what they began with; watches of what is
// served no longer as it was end then, so that their clients come anew. It is called by one at a time.
func (s *Server) SetDefs(defs []*resource.Def) {
	old := s.routes.Load()
	now := newRoutes(old, defs, &s.o)
	s.routes.Store(now)
	old.endAllBut(now)
}

// Share says that other servers write to the store as well, from now on (see [Options]).
func (s *Server) Share() { s.reads.Share() }

// Told takes in changes of the store that are of no resource, as [watchcache.Options] tell of them.
func (s *Server) Told(changes []store.Change, rev int64) { s.writes.Told(changes, rev) }

// Missed takes in up to which revision there were changes that nobody has told of.
func (s *Server) Missed(rev int64) { s.writes.Missed(rev) }

// Scavenge gives back memory that requests have left behind, while there are few of them.
func (s *Server) Scavenge() { s.encoded.Scavenge() }

// Handler serves the API over HTTP.
func (s *Server) Handler() http.Handler { return s.handler }

// As returns the API as seen by a user within this process: the same checks,
// but objects are handed over as they are (A4). agent names the client, such as
// "kube-scheduler": it manages the fields that it writes.
func (s *Server) As(u user.Info, agent string) client.Transport {
	return &local{s: s, user: u, agent: agent}
}

// Run does the server's own background work until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	g.Go("schema", func(context.Context) error { // or the first write would wait for it
		patch.Warm()
		return nil
	})
	g.Go("allocations", func(ctx context.Context) error {
		if err := s.writes.Repair(ctx, s.o.Defs); err != nil && ctx.Err() == nil {
			return err
		}
		if err := s.writes.Know(ctx, core.ClassNodePort); err != nil && ctx.Err() == nil { // so that metrics have it
			return err
		}
		if ctx.Err() == nil {
			close(s.allocated)
		}
		<-ctx.Done()
		return nil
	})
	if slices.Contains(s.o.Defs, flowcontrol.FlowSchemas.Def) {
		g.Go("flow schemas", func(ctx context.Context) error {
			return s.flows.Follow(ctx, s.o.Caches.Cache(flowcontrol.FlowSchemas.Def), s.o.Caches.Cache(flowcontrol.PriorityLevels.Def))
		})
	}
	if s.o.Audit != nil {
		g.Go("audit", s.o.Audit.Run)
	}
	defer s.handlers.close()
	return g.Wait()
}

// Fresh returns when the caches show all writes answered so far (A3): for
// plugins that must not refuse on an old view.
func (s *Server) Fresh(ctx context.Context) error {
	for _, d := range s.o.Defs {
		if d.Stored() {
			return s.reads.CaughtUp(ctx, s.o.Caches.Cache(d)) // they all advance together
		}
	}
	return nil
}
