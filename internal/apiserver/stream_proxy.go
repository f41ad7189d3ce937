package apiserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
)

// target is where a proxied request goes.
type target struct {
	url       *url.URL // without the path
	transport http.RoundTripper
}

// serveProxy forwards HTTP to a port of a pod, to an endpoint of a service or
// to a node, named [scheme:]name[:port].
func serveProxy(s *Server, w http.ResponseWriter, r *http.Request, c *call) {
	switch c.res.def {
	case core.Pods.Def:
		s.forward(w, r, c, destination{&corev1.PodProxyOptions{}, s.podTarget})
	case core.Services.Def:
		s.forward(w, r, c, destination{&corev1.ServiceProxyOptions{}, s.serviceTarget})
	case core.Nodes.Def:
		s.forward(w, r, c, destination{&corev1.NodeProxyOptions{}, s.nodeTarget})
	default:
		s.writeError(w, r, genericNotFound())
	}
}

// destination is a kind of thing that requests are forwarded to: its options,
// for admission, and how to find the target.
type destination struct {
	options runtime.Object
	resolve func(ctx context.Context, c *call, scheme, port string) (target, error)
}

func (s *Server) forward(w http.ResponseWriter, r *http.Request, c *call, to destination) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(c.name)
	if !ok {
		s.writeError(w, r, apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", c.res.def.Singular, c.name)))
		return
	}
	if err := s.admitConnect(r.Context(), c, to.options); err != nil {
		s.writeError(w, r, err)
		return
	}
	named := *c
	named.name = name
	t, err := to.resolve(r.Context(), &named, scheme, port)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	t.url.Path = proxyPath(r.URL.Path)
	t.url.RawQuery = r.URL.RawQuery
	h := s.upgrade(t.url, t.transport, false)
	h.WrapTransport = true
	h.ServeHTTP(w, r)
}

// proxyPath is what follows /proxy in a request's path, with its slash.
func proxyPath(path string) string {
	_, rest, _ := strings.Cut(path, "/proxy")
	return rest
}

func (s *Server) podTarget(ctx context.Context, c *call, scheme, port string) (target, error) {
	pod, err := s.podOf(ctx, c)
	if err != nil {
		return target{}, err
	}
	if port == "" {
		port = firstPort(pod)
	}
	if pod.Status.PodIP == "" {
		return target{}, apierrors.NewBadRequest("address not allowed")
	}
	return direct(scheme, pod.Status.PodIP, port), nil
}

func firstPort(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			return strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	return ""
}

// direct is a target on the network that pods are reached by. What serves there
// has a certificate of its own kind, if any: it is not verified, as upstream.
func direct(scheme, host, port string) target {
	if port != "" {
		host = net.JoinHostPort(host, port)
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return target{url: &url.URL{Scheme: cmp.Or(scheme, "http"), Host: host}, transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}}
}

func (s *Server) serviceTarget(ctx context.Context, c *call, scheme, port string) (target, error) {
	it, err := s.get(ctx, c, "")
	if err != nil {
		return target{}, err
	}
	svc := it.Object.(*corev1.Service)
	name, found := servicePort(svc, port)
	if !found {
		return target{}, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %q found for service %q", port, svc.Name))
	}
	slices := s.o.Caches.Cache(discovery.EndpointSlices.Def).ByIndex(discovery.IndexService, cache.Key(svc.Namespace, svc.Name))
	host, number, found := endpointOf(slices, name)
	if !found {
		return target{}, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", svc.Name))
	}
	return direct(scheme, host, strconv.Itoa(int(number))), nil
}

// servicePort is the name of the port that a request means, by its name or number.
func servicePort(svc *corev1.Service, port string) (string, bool) {
	if port == "" && len(svc.Spec.Ports) == 1 {
		return svc.Spec.Ports[0].Name, true
	}
	for _, p := range svc.Spec.Ports {
		if p.Name == port || strconv.Itoa(int(p.Port)) == port {
			return p.Name, true
		}
	}
	return "", false
}

// endpointOf picks one of the ready endpoints of a port, at random.
func endpointOf(slices []*cache.Item, port string) (host string, number int32, found bool) {
	seen := 0
	for _, it := range slices {
		s := it.Object.(*discoveryv1.EndpointSlice)
		for _, p := range s.Ports {
			if p.Name == nil || p.Port == nil || *p.Name != port {
				continue
			}
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 {
					continue
				}
				seen++
				if rand.IntN(seen) == 0 { // each of those seen is equally likely
					host, number, found = e.Addresses[0], *p.Port, true
				}
			}
		}
	}
	return host, number, found
}

func (s *Server) nodeTarget(ctx context.Context, c *call, scheme, port string) (target, error) {
	it, err := s.get(ctx, c, "")
	if err != nil {
		return target{}, err
	}
	node := it.Object.(*corev1.Node)
	if port == "" || port == strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)) {
		return target{url: &url.URL{Scheme: "http", Host: node.Name}, transport: s.agentTransport(node.Name)}, nil
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return direct(scheme, a.Address, port), nil
		}
	}
	return target{}, apierrors.NewServiceUnavailable(fmt.Sprintf("node %q has no address", node.Name))
}
