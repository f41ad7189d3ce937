package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// tryTimeout bounds how long one of several endpoints may take to let itself be connected to.
const tryTimeout = 5 * time.Second

// Port is a port of a service, by its number.
type Port struct {
	Namespace, Name string
	Number          int32
}

// Host is the name that the certificate of what serves there is made out to.
func (p Port) Host() string { return p.Name + "." + p.Namespace + ".svc" }

// Endpoint is where a port of a service is served.
type Endpoint struct {
	Node    string // of the pod that has the address; empty: it is no pod's, or not known
	Address string // "10.0.0.7:443"; of a service that has a name elsewhere, with that name
}

// Missing says why a port is served nowhere, in upstream's words.
type Missing struct {
	Reason  string // of a condition: "ServiceNotFound", "ServicePortError", "EndpointsNotFound" or "MissingEndpoints"
	Message string // of the condition
	Called  string // what who calls the port hears
}

func (m *Missing) Error() string { return m.Called }

// Services finds the endpoints of services. Its methods may be called concurrently.
type Services struct {
	// Cache returns the process's cache of a resource: of services, endpoint slices and pods.
	Cache func(def *resource.Def) *cache.Cache
	// Connect opens a connection to an address of a pod on a node; nil: as the network has it.
	Connect func(ctx context.Context, node, address string) (net.Conn, error)

	turn atomic.Uint32 // which endpoint is next
}

// Endpoints are where a port is served now: ready ones only, one at least. The error is a
// [*Missing] where there is none.
func (s *Services) Endpoints(p Port) ([]Endpoint, error) {
	it := s.Cache(core.Services.Def).Get(cache.Key(p.Namespace, p.Name))
	if it == nil {
		return nil, &Missing{"ServiceNotFound", fmt.Sprintf("service/%s in %q is not present", p.Name, p.Namespace),
			fmt.Sprintf("service %q not found", p.Name)}
	}
	svc := it.Object.(*corev1.Service)
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return []Endpoint{{Address: net.JoinHostPort(svc.Spec.ExternalName, strconv.Itoa(int(p.Number)))}}, nil
	}
	i := slices.IndexFunc(svc.Spec.Ports, func(sp corev1.ServicePort) bool { return sp.Port == p.Number })
	if i < 0 {
		return nil, &Missing{"ServicePortError", fmt.Sprintf("service/%s in %q is not listening on port %d", p.Name, p.Namespace, p.Number),
			fmt.Sprintf("no service port %d found for service %q", p.Number, p.Name)}
	}
	name := svc.Spec.Ports[i].Name
	items := s.Cache(discovery.EndpointSlices.Def).ByIndex(discovery.IndexService, cache.Key(p.Namespace, p.Name))
	if len(items) == 0 {
		return nil, &Missing{"EndpointsNotFound", fmt.Sprintf("cannot find endpointslices for service/%s in %q", p.Name, p.Namespace), unserved(p)}
	}
	var all []Endpoint
	for _, it := range items {
		all = s.ready(all, it.Object.(*discoveryv1.EndpointSlice), name)
	}
	if len(all) == 0 {
		return nil, &Missing{"MissingEndpoints", fmt.Sprintf("endpointslices for service/%s in %q have no addresses with port name %q", p.Name, p.Namespace, name), unserved(p)}
	}
	return all, nil
}

func unserved(p Port) string { return fmt.Sprintf("no endpoints available for service %q", p.Name) }

// ready appends the endpoints of a slice that serve the port of a name.
func (s *Services) ready(all []Endpoint, slice *discoveryv1.EndpointSlice, name string) []Endpoint {
	for _, port := range slice.Ports {
		if port.Port == nil || port.Name == nil || *port.Name != name {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 || !routable(e.Addresses[0]) {
				continue
			}
			all = append(all, Endpoint{Node: s.nodeOf(slice.Namespace, e), Address: net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*port.Port)))})
		}
	}
	return all
}

// routable reports whether an address is one of a single machine, on a network that reaches beyond
// its link: what listens to this machine alone is nobody's service.
func routable(address string) bool { return net.ParseIP(address).IsGlobalUnicast() }

// nodeOf is where the pod of an endpoint runs, if it has the endpoint's address: who writes a slice
// does not say by which way a server goes.
func (s *Services) nodeOf(namespace string, e *discoveryv1.Endpoint) string {
	if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
		return ""
	}
	it := s.Cache(core.Pods.Def).Get(cache.Key(namespace, e.TargetRef.Name))
	if it == nil {
		return ""
	}
	pod := it.Object.(*corev1.Pod)
	if slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == e.Addresses[0] }) {
		return pod.Spec.NodeName
	}
	return ""
}

// Dial connects to one of the endpoints of a port, by turns: where one cannot be reached it tries
// the others, until ctx ends.
func (s *Services) Dial(ctx context.Context, p Port) (net.Conn, error) {
	all, err := s.Endpoints(p)
	if err != nil {
		return nil, err
	}
	first, errs := int(s.turn.Add(1)-1)%len(all), error(nil)
	for i := range all {
		conn, err := s.connect(ctx, all[(first+i)%len(all)])
		if err == nil {
			return conn, nil
		}
		if errs = errors.Join(errs, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errs
}

func (s *Services) connect(ctx context.Context, e Endpoint) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if s.Connect != nil && net.ParseIP(hostOf(e.Address)) != nil {
		return s.Connect(ctx, e.Node, e.Address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", e.Address)
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
