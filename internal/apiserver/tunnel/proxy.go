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
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kemudi/kemudi/internal/api/core"
)

// target is where a proxied request goes.
type target struct {
	url       *url.URL // without the path
	transport http.RoundTripper
	node      string // where it is
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
	t.url.Path = q.Below
	t.url.RawQuery = q.R.URL.RawQuery
	h := q.upgrade(t.url, t.transport, false)
	h.WrapTransport = true
	h.ServeHTTP(q.W, onNode(q.R, t.node))
}

func (t *Tunnels) podTarget(ctx context.Context, q *Request, n named) (target, error) {
	pod, err := q.pod(ctx, n.name)
	if err != nil {
		return target{}, err
	}
	if n.port == "" {
		n.port = firstPort(pod)
	}
	return t.address(pod.Spec.NodeName, named{n.scheme, pod.Status.PodIP, n.port})
}

func firstPort(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			return strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	return ""
}

// newAddresses speaks HTTP with what is at addresses of pods and nodes; the context of a
// request says on which node ([onNode]). What serves there has a certificate of its own
// kind, if any: it is not verified, as upstream.
func newAddresses(nodes Nodes) *http.Transport {
	dial := (&net.Dialer{Timeout: dialTimeout}).DialContext
	if nodes != nil {
		dial = func(ctx context.Context, _, address string) (net.Conn, error) {
			node, _ := ctx.Value(nodeKey{}).(string)
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			return nodes.DialAddress(ctx, node, address)
		}
	}
	return &http.Transport{
		DialContext: dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, TLSHandshakeTimeout: dialTimeout,
		MaxIdleConns: keptInAll, MaxIdleConnsPerHost: keptPerTarget, IdleConnTimeout: kept,
	}
}

// nodeKey is the key of [onNode].
type nodeKey struct{}

// onNode puts the node of a request's target into the request's context, where [newAddresses] finds it when it opens
// the connection.
func onNode(r *http.Request, node string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), nodeKey{}, node))
}

// address is a target on a node by its IP address, which an object of the API says. Whoever
// may write such an object must not reach by it what only this machine itself can reach: addresses
// of that kind are refused, and so are names, whatever they stand for.
func (t *Tunnels) address(node string, at named) (target, error) {
	ip := at.name
	if !proxyable(ip) {
		return target{}, apierrors.NewBadRequest("address not allowed")
	}
	host := ip
	if at.port != "" {
		if _, err := strconv.ParseUint(at.port, 10, 16); err != nil { // names are for the ports of services
			return target{}, apierrors.NewBadRequest(fmt.Sprintf("invalid port %q", at.port))
		}
		host = net.JoinHostPort(ip, at.port)
	} else if strings.Contains(ip, ":") {
		host = "[" + ip + "]"
	}
	return target{url: &url.URL{Scheme: cmp.Or(at.scheme, "http"), Host: host}, transport: t.addresses, node: node}, nil
}

// proxyable reports whether requests may be sent on to an address: it is one of a
// single machine, on a network that reaches beyond its link.
func proxyable(ip string) bool { return net.ParseIP(ip).IsGlobalUnicast() }

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
	e, found := t.endpointOf(svc, name)
	if !found {
		return target{}, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", svc.Name))
	}
	return t.address(e.node, named{n.scheme, e.ip, strconv.Itoa(int(e.port))})
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

// endpoint is one address of a service's port.
type endpoint struct {
	ip   string
	port int32
	pod  string // that is said to have the address
	node string // of the pod, once it is known
}

// endpointOf picks one of the ready endpoints of a service's port, at random:
// one of a pod in the service's namespace that has the address. Whoever may write
// endpoint slices could have any other reached by this server, and be answered
// from where he cannot go himself.
func (t *Tunnels) endpointOf(svc *corev1.Service, port string) (_ endpoint, found bool) {
	var all []endpoint
	for _, it := range t.o.Slices(svc.Namespace, svc.Name) {
		s := it.Object.(*discoveryv1.EndpointSlice)
		for _, p := range s.Ports {
			if p.Name == nil || p.Port == nil || *p.Name != port {
				continue
			}
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 ||
					e.TargetRef == nil || e.TargetRef.Kind != "Pod" || e.TargetRef.Namespace != svc.Namespace {
					continue
				}
				all = append(all, endpoint{ip: e.Addresses[0], port: *p.Port, pod: e.TargetRef.Name})
			}
		}
	}
	if len(all) == 0 {
		return endpoint{}, false
	}
	first := rand.IntN(len(all))
	for i := range all {
		e := all[(first+i)%len(all)]
		it := t.o.Pod(svc.Namespace, e.pod)
		if it == nil || !proxyable(e.ip) {
			continue
		}
		if pod := it.Object.(*corev1.Pod); has(pod, e.ip) {
			e.node = pod.Spec.NodeName
			return e, true
		}
	}
	return endpoint{}, false
}

// has reports whether a pod has the address.
func has(pod *corev1.Pod, ip string) bool {
	return slices.ContainsFunc(pod.Status.PodIPs, func(p corev1.PodIP) bool { return p.IP == ip })
}

// nodeTarget is a node's agent, of which the server knows better than the Node
// object where it is (it shows who it is, or is in this process), or another port
// at the node's address.
func (t *Tunnels) nodeTarget(ctx context.Context, q *Request, n named) (target, error) {
	obj, err := q.API.Get(ctx, n.name)
	if err != nil {
		return target{}, err
	}
	node := obj.(*corev1.Node)
	if n.port == "" || n.port == strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)) {
		return target{url: &url.URL{Scheme: "http", Host: node.Name}, transport: t.agents}, nil
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return t.address(node.Name, named{n.scheme, a.Address, n.port})
		}
	}
	return target{}, apierrors.NewServiceUnavailable(fmt.Sprintf("node %q has no address", node.Name))
}
