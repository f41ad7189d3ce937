package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/apiserver/legacy"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/apiserver/tunnel"
	"github.com/kemudi/kemudi/internal/apiserver/write"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/dialback"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
)

// Options say what a Server serves. Store, Defs and Caches are required.
type Options struct {
	Store  store.Store
	Defs   []*resource.Def
	Caches write.Caches

	// RuntimeConfig turns group-versions and single resources on (true) and off
	// (false), as discovery.Enabled reads it.
	RuntimeConfig map[string]bool

	// Encrypted says whether a value may lie in the store encrypted: nothing is done about what nobody changes, unless
	// it would be encrypted otherwise today. Nil: none does.
	Encrypted func(key string) bool

	// Shared says that other servers write to the store as well: then each read
	// of the newest state asks the store how new that is.
	Shared bool

	// Sources make the objects of computed resources; those of others are not found.
	Sources map[*resource.Def]read.Source

	// Authenticator says who sends an HTTP request; nil: everybody is anonymous.
	Authenticator authenticator.Request
	// While calls end when what a request showed to the Authenticator is good no more: it
	// then ends, however long it would last. The server calls stop when it is over.
	// Nil: what was good stays so until the request ends.
	While func(r *http.Request, end func()) (stop func())
	// Legacy notes who calls deprecated versions; nil: nobody does.
	Legacy *legacy.Calls
	// Authorizer says who may do what; nil: everybody everything.
	Authorizer authorizer.Authorizer
	// Admission changes and refuses writes; nil: none.
	Admission write.Admission

	// Nodes reaches node agents, for logs, exec and the like; nil: there are none.
	Nodes tunnel.Nodes
	// Tunnels has the connections that agents keep to this server; nil: none is taken.
	Tunnels *dialback.Registry
	// Plain are further paths that are no resources, by their patterns for [http.ServeMux].
	// Who asks may, by the path; what an answer is made of is sent as JSON, unless it is an
	// [http.Handler], which answers.
	Plain map[string]func(ctx context.Context, q PlainRequest) (any, error)
	// Tokens signs tokens of service accounts; nil: none are issued.
	Tokens *authn.Issuer

	// Health answers /livez, /readyz and /healthz; nil: one without checks.
	Health *obs.Health
	// Registry holds the metrics that /metrics shows; nil: a new one.
	Registry *prometheus.Registry
	// NoProfiling says that nobody gets profiles of the process, below /debug/pprof.
	NoProfiling bool
	// Aggregated has the group-versions of other servers; nil: there are none.
	Aggregated Aggregated

	Told
	Values
	Limits
	Connections

	Logger *slog.Logger
}

// PlainRequest is a request of one of the paths of Options.Plain.
type PlainRequest struct {
	User  user.Info
	Name  string // {name} of the pattern
	Query url.Values
	Body  []byte
}

// Told says who is told of requests.
type Told struct {
	// Audit is told of them; nil: nobody is.
	Audit *audit.Log
	// Tracing makes spans of them, and of what is done for them; nil: there are none.
	Tracing *tracing.Provider
}

// Values says what is given to objects of which no two may have the same.
type Values struct {
	// Settings are flags that allocations depend on, such as service-cluster-ip-range.
	Settings map[string]string
	// Events notes at Services what was wrong with their node ports when the server began; nil: nowhere.
	Events client.EventSink
}

// Connections says from when on what comes by connections is answered, and how that is sent.
type Connections struct {
	// Settled is closed when whoever decides about requests knows the state of the store, and what kinds there
	// are: requests wait for it, but those for health and for the paths of Early. Nil: it is from the start.
	Settled <-chan struct{}
	Early   []string
	// FrameByFrame says that HTTP/2 is sent as the library's server does it, without
	// package h2, and that busy watches do not wait to send more at a time.
	FrameByFrame bool
	Serving      Serving
}

// Limits bound what requests take. What is 0 has its default.
type Limits struct {
	// RequestTimeout bounds every request that is not long-running. Default [DefaultRequestTimeout].
	RequestTimeout time.Duration
	// WatchTime is how long a watch lasts at least whose client does not say so; it lasts up to twice as long.
	// Negative: as long as its client likes. Default [DefaultWatchTime].
	WatchTime time.Duration
	// Kept is how long objects are kept that are not kept for ever, whatever their kinds say. Default [DefaultKept].
	Kept time.Duration
	// MaxBody bounds the body of a request, in bytes. Default 3 MiB.
	MaxBody int64
	// MaxReads and MaxWrites are together the seats that priority levels share (package flow), of which
	// a request takes one or some. Defaults [DefaultMaxReads] and [DefaultMaxWrites].
	MaxReads, MaxWrites int
	// EncodedBytes bounds the memory for encodings of cached objects. Default [DefaultEncodedBytes].
	EncodedBytes int64
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Store == nil:
		return o, errors.New("apiserver options: no store")
	case o.Caches == nil:
		return o, errors.New("apiserver options: no caches")
	case len(o.Defs) == 0:
		return o, errors.New("apiserver options: no resources")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Health == nil {
		o.Health = &obs.Health{Log: o.Logger}
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Events == nil {
		o.Events = client.NoEvents
	}
	if o.Admission == nil {
		o.Admission = write.NoAdmission{}
	}
	if err := o.Serving.Check(); err != nil {
		return o, fmt.Errorf("apiserver options: %w", err)
	}
	setDefault(&o.Serving.Streams, maxStreams)
	setDefault(&o.RequestTimeout, DefaultRequestTimeout)
	setDefault(&o.WatchTime, DefaultWatchTime)
	setDefault(&o.Kept, DefaultKept)
	setDefault(&o.MaxBody, 3<<20)
	setDefault(&o.MaxReads, DefaultMaxReads)
	setDefault(&o.MaxWrites, DefaultMaxWrites)
	setDefault(&o.EncodedBytes, DefaultEncodedBytes)
	return o, nil
}

// What a server takes of the settings that people have flags for.
const (
	DefaultRequestTimeout = time.Minute
	DefaultWatchTime      = 30 * time.Minute
	DefaultKept           = time.Hour
	DefaultMaxReads       = 400
	DefaultMaxWrites      = 200
	DefaultEncodedBytes   = 32 << 20
)

func setDefault[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}
