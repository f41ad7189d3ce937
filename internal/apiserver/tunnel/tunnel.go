package tunnel

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// Options of tunnels. Slices, Pod and Logger are required.
type Options struct {
	// Nodes reaches node agents, pods and other ports of nodes; nil: there are no agents,
	// and the rest is reached as the network has it.
	Nodes Nodes
	// Slices returns the cached endpoint slices of a service, Pod a cached pod or nil.
	Slices func(namespace, service string) []*cache.Item
	Pod    func(namespace, name string) *cache.Item
	Logger *slog.Logger
	// Registry gets the metrics; nil: nobody does.
	Registry prometheus.Registerer
}

// Tunnels opens connections to node agents, pods and services. Its methods
// answer one request each and may be called concurrently.
type Tunnels struct {
	o Options
	// agents speaks HTTP with node agents, addresses with what is at addresses of pods
	// and nodes. Each keeps idle connections, by their targets.
	agents, addresses *http.Transport
	// unverified speaks with node agents whatever their certificates are, each time by a new connection.
	unverified *http.Transport
	metrics    *metrics
}

// New returns tunnels; Close closes the connections that they keep.
func New(o Options) *Tunnels {
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	t := &Tunnels{o: o, metrics: newMetrics(o.Registry)}
	t.agents, t.addresses = newAgents(o.Nodes), newAddresses(o.Nodes)
	t.unverified = newAgents(o.Nodes)
	t.unverified.DisableKeepAlives = true
	return t
}

// Close closes the connections that wait for requests. Those in use end with
// their requests.
func (t *Tunnels) Close() {
	t.agents.CloseIdleConnections()
	t.addresses.CloseIdleConnections()
}

// Bounds of the connections that are kept. One that goes unused for as long as
// kept is closed: its pod may be gone by then without a word.
const (
	dialTimeout   = 30 * time.Second
	kept          = 30 * time.Second
	keptPerTarget = 8
	keptInAll     = 256
)

// Request is one HTTP request that is to be answered from a node.
type Request struct {
	W http.ResponseWriter
	R *http.Request
	// Def is the resource, Name the object's name as the path has it.
	Def  *resource.Def
	Name string
	// Below is what follows the subresource in the path, with its slash.
	Below string
	API   API
}

// API is what a tunnel asks the API server that the request came to, on behalf
// of the request's user.
type API interface {
	// Get reads an object of the request's resource and namespace, in its newest state.
	Get(ctx context.Context, name string) (resource.Object, error)
	// MayCreate says why the user may not create what the request is about, whatever the request's own verb is.
	MayCreate(r *http.Request) error
	// Admit asks admission whether a connection with these options may be made.
	Admit(ctx context.Context, options runtime.Object) error
	// Fail answers with an error, as the API shows it.
	Fail(w http.ResponseWriter, r *http.Request, err error)
}

// fail answers the request with an error.
func (q *Request) fail(err error) { q.API.Fail(q.W, q.R, err) }

// options decodes the query into the request's options object.
func (q *Request) options(into runtime.Object) error {
	if err := decodeQuery(q.R.URL.Query(), into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// streams decodes the options of a request for streams of a pod. Who opens them by GET, as WebSockets are, needs the
// right that those have who do it by POST.
func (q *Request) streams(into runtime.Object) error {
	if err := q.options(into); err != nil {
		return err
	}
	return q.API.MayCreate(q.R)
}

// pod reads the pod that the request is about.
func (q *Request) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	obj, err := q.API.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}

// Error answers with an error of a handler of the Kubernetes libraries.
func (q *Request) Error(w http.ResponseWriter, r *http.Request, err error) {
	if apierrors.ReasonForError(err) == "" {
		err = apierrors.NewInternalError(err)
	}
	q.API.Fail(w, r, err)
}
