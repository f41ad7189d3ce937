package tunnel

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
	"github.com/kemudi/kemudi/internal/cache"
)

// target is where a proxied request goes.
type target struct {
	url       *url.URL // without the path
	transport http.RoundTripper
}

// Proxy forwards HTTP to a port of a pod, to an endpoint of a service or to a
// node, named [scheme:]name[:port].
func (t *Tunnels) Proxy(q *Request) {
	switch q.Def {
	case core.Pods.Def:
		q.forward(destination{&corev1.PodProxyOptions{}, t.podTarget})
	case core.Services.Def:
		q.forward(destination{&corev1.ServiceProxyOptions{}, t.serviceTarget})
	case core.Nodes.Def:
		q.forward(destination{&corev1.NodeProxyOptions{}, t.nodeTarget})
	default:
		q.fail(apierrors.NewInternalError(fmt.Errorf("%s cannot be proxied", q.Def)))
	}
}

// destination is a kind of thing that requests are forwarded to: its options,
// for admission, and how to find the target.
type destination struct {
	options runtime.Object
	resolve func(ctx context.Context, q *Request, n named) (target, error)
}

// named is what a request's path says of its target; scheme and port may be empty.
type named struct{ scheme, name, port string }

func (q *Request) forward(to destination) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(q.Name)
	if !ok {
		q.fail(apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", q.Def.Singular, q.Name)))
		return
	}
	if err := q.API.Admit(q.R.Context(), to.options); err != nil {
		q.fail(err)
		return
	}
	t, err := to.resolve(q.R.Context(), q, named{scheme, name, port})
	if err != nil {
		q.fail(err)
		return
	}
	t.url.Path = proxyPath(q.R.URL.Path)
	t.url.RawQuery = q.R.URL.RawQuery
	h := q.upgrade(t.url, t.transport, false)
	h.WrapTransport = true
	h.ServeHTTP(q.W, q.R)
}

// proxyPath is what follows /proxy in a request's path, with its slash.
func proxyPath(path string) string {
	_, rest, _ := strings.Cut(path, "/proxy")
	return rest
}

func (*Tunnels) podTarget(ctx context.Context, q *Request, n named) (target, error) {
	pod, err := q.pod(ctx, n.name)
	if err != nil {
		return target{}, err
	}
	if n.port == "" {
		n.port = firstPort(pod)
	}
	if pod.Status.PodIP == "" {
		return target{}, apierrors.NewBadRequest("address not allowed")
	}
	return direct(n.scheme, pod.Status.PodIP, n.port), nil
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

func (t *Tunnels) serviceTarget(ctx context.Context, q *Request, n named) (target, error) {
	obj, err := q.API.Get(ctx, n.name)
	if err != nil {
		return target{}, err
	}
	svc := obj.(*corev1.Service)
	name, found := servicePort(svc, n.port)
	if !found {
		return target{}, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %q found for service %q", n.port, svc.Name))
	}
	host, number, found := endpointOf(t.Slices(svc.Namespace, svc.Name), name)
	if !found {
		return target{}, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", svc.Name))
	}
	return direct(n.scheme, host, strconv.Itoa(int(number))), nil
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

func (t *Tunnels) nodeTarget(ctx context.Context, q *Request, n named) (target, error) {
	obj, err := q.API.Get(ctx, n.name)
	if err != nil {
		return target{}, err
	}
	node := obj.(*corev1.Node)
	if n.port == "" || n.port == strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)) {
		return target{url: &url.URL{Scheme: "http", Host: node.Name}, transport: t.agent(node.Name)}, nil
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return direct(n.scheme, a.Address, n.port), nil
		}
	}
	return target{}, apierrors.NewServiceUnavailable(fmt.Sprintf("node %q has no address", node.Name))
}
