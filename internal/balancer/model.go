package balancer

import (
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/ingress"
)

// keyPrefix begins the keys in tables of edges of what is a balancer's.
const keyPrefix = "balancer/"

// Served says that the edges of nodes take what comes to a Service's balancer.
func Served(svc *corev1.Service) bool { return served(svc) != nil }

// served is what a Service asks that is served; nil: nothing is.
func served(svc *corev1.Service) *core.Relay {
	if core.ServiceBalanced(svc) == nil || len(svc.Status.LoadBalancer.Ingress) == 0 {
		return nil
	}
	r, err := core.RelayOf(svc)
	if err != nil { // its controller tells of it
		return nil
	}
	return r
}

// Model keeps what an edge knows of balancers in step with Services, Secrets and endpoints. It belongs to one
// goroutine.
type Model struct {
	known  ingress.Objects
	node   string
	served map[string]*part // by key of the Service
	dirty  map[string]bool  // Services that are to be looked at
}

// part is what an edge is told of one Service, by key.
type part struct {
	secrets []string // keys of those that it needs
	doors   map[string]*route.Door
	ups     map[string]*route.Upstream
	certs   map[string]*route.Certificate
}

// NewModel returns a model without Services, for the edge of a node.
func NewModel(known ingress.Objects, node string) *Model {
	return &Model{known: known, node: node, served: map[string]*part{}, dirty: map[string]bool{}}
}

// Service says that a Service or its endpoints have changed.
func (m *Model) Service(key string) { m.dirty[key] = true }

// Secret says that a Secret has changed.
func (m *Model) Secret(key string) {
	for service, p := range m.served {
		if slices.Contains(p.secrets, key) {
			m.dirty[service] = true
		}
	}
}

// Secrets are the keys of those that are needed.
func (m *Model) Secrets() (keys []string) {
	for _, p := range m.served {
		keys = append(keys, p.secrets...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Forget has the next change be all that there is.
func (m *Model) Forget() {
	for key, p := range m.served {
		m.served[key], m.dirty[key] = &part{secrets: p.secrets}, true
	}
}

// Commit adds to a change what is different for an edge since the last one.
func (m *Model) Commit(c *route.Change) {
	for key := range m.dirty {
		namespace, name := ingress.Split(key)
		was, now := m.served[key], m.compile(m.known.Service(namespace, name))
		if was == nil && now == nil {
			continue
		}
		if was == nil {
			was = &part{}
		}
		delete(m.served, key)
		if now != nil {
			m.served[key] = now
		} else {
			now = &part{}
		}
		differ(was.doors, now.doors, &c.Doors)
		differ(was.ups, now.ups, &c.Upstreams)
		differ(was.certs, now.certs, &c.Certificates)
	}
	clear(m.dirty)
}

// differ adds what is different.
func differ[T any](was, now map[string]*T, to *map[string]*T) {
	put := func(key string, value *T) {
		if *to == nil {
			*to = map[string]*T{}
		}
		(*to)[key] = value
	}
	for key := range was {
		if now[key] == nil {
			put(key, nil)
		}
	}
	for key, value := range now {
		if !reflect.DeepEqual(was[key], value) {
			put(key, value)
		}
	}
}

// compile is what an edge is told of a Service; nil: nothing.
func (m *Model) compile(svc *corev1.Service) *part {
	if svc == nil {
		return nil
	}
	r := served(svc)
	if r == nil {
		return nil
	}
	key := svc.Namespace + "/" + svc.Name
	p := &part{doors: map[string]*route.Door{}, ups: map[string]*route.Upstream{}, certs: map[string]*route.Certificate{}}
	for _, name := range core.BalancerSecrets(svc) {
		p.secrets = append(p.secrets, svc.Namespace+"/"+name)
	}
	var shown []string
	if r.Certificate != "" {
		if s := m.known.Secret(svc.Namespace, r.Certificate); s != nil {
			if cert, err := ingress.Certificate(s); err == nil { // L2; its controller tells of one that cannot be used
				p.certs[keyPrefix+key] = cert
				shown = []string{keyPrefix + key}
			}
		}
	}
	trust, known := m.trust(svc, r, p)
	relay := relayOf(svc, r)
	for i := range r.Ports {
		port := &r.Ports[i]
		name := keyPrefix + key + ":" + strconv.Itoa(int(port.Port))
		l := route.Listener{Mode: mode(port), Sites: []*route.Site{{
			Key: key, Rules: []route.Rule{{Type: route.Prefix, Do: 1}}, Actions: []route.Action{{Backends: []route.Backend{{Upstream: name, Weight: 1}}}},
		}}}
		if port.Encrypt {
			b := &l.Sites[0].Actions[0].Backends[0]
			b.Protocol, b.Trust = route.HTTPS, trust
			if !known { // L2: nothing is sent to whom nobody can know as it is wanted
				b.Upstream = ""
			}
		}
		if port.TLS {
			l.Certificates = shown
		}
		p.doors[name] = &route.Door{Port: uint16(port.NodePort), Public: uint16(port.Port), Listeners: []route.Listener{l}, Relay: relay}
		p.ups[name] = &route.Upstream{Endpoints: m.endpoints(svc, port)}
	}
	return p
}

// trust is how pods are known that speak TLS; nil: they are not, and are shown nothing. known is false if that cannot be had.
func (m *Model) trust(svc *corev1.Service, r *core.Relay, p *part) (trust *route.Trust, known bool) {
	if r.BackendName == "" && r.BackendSecret == "" {
		return nil, true
	}
	trust = &route.Trust{Name: r.BackendName, Unknown: r.BackendName == ""}
	if r.BackendSecret == "" {
		return trust, true
	}
	s := m.known.Secret(svc.Namespace, r.BackendSecret)
	if s == nil {
		return nil, false
	}
	authorities, shown, err := ingress.Trusted(s)
	if err != nil || len(authorities) > 0 && r.BackendName == "" { // its controller tells of it
		return nil, false
	}
	trust.Authorities = authorities
	if shown != nil {
		trust.Certificate = keyPrefix + svc.Namespace + "/" + svc.Name + "#backend"
		p.certs[trust.Certificate] = shown
	}
	return trust, true
}

// mode is what is done with connections to a port.
func mode(p *core.RelayPort) route.Mode {
	switch {
	case p.TLS && p.HTTP:
		return route.Secure
	case p.TLS:
		return route.Terminate
	case p.HTTP:
		return route.Plain
	}
	return route.Bytes
}

func relayOf(svc *corev1.Service, r *core.Relay) *route.Relay {
	out := &route.Relay{
		Service: svc.Namespace + "/" + svc.Name, Header: r.Header, Idle: int64(r.Idle / time.Millisecond), Drain: int64(r.Draining / time.Millisecond), Log: r.Log,
		Sticky: svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP,
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil && ptr.Deref(in.IPMode, corev1.LoadBalancerIPModeVIP) == corev1.LoadBalancerIPModeVIP {
			out.Addresses = append(out.Addresses, a)
		}
	}
	return out
}

// endpoints are those that may be sent to. Where external traffic must stay on the node, the proxy lets clients from
// outside come only while there are some here; others may use any.
func (m *Model) endpoints(svc *corev1.Service, p *core.RelayPort) []string {
	u := ingress.Upstream{Namespace: svc.Namespace, Service: svc.Name, Port: networkingv1.ServiceBackendPort{Number: p.Port}}
	if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		return ingress.EndpointsOn(m.node, u, m.known)
	}
	return ingress.Endpoints(u, m.known)
}
