package gateway

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// listener is one of a Gateway or of a set on its way.
type listener struct {
	gateway    *gateway
	set        *set   // nil: it is the Gateway's own
	namespace  string // of whose it is
	spec       gatewayv1.Listener
	kinds      []string // of routes that it may have
	accepted   *fault
	resolved   *fault
	conflict   *fault
	overlaps   string // listener with which it shares names
	attached   int32
	hosts      map[string]*hosts // of attached routes, by kind
	out        route.Listener
	conditions conditions
}

func labelsOf(n *corev1.Namespace) labels.Set { return labels.Set(n.Labels) }

// kindsOf are the kinds of routes for a protocol.
func kindsOf(p gatewayv1.ProtocolType) []string {
	switch p {
	case gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType:
		return []string{"HTTPRoute", "GRPCRoute"}
	case gatewayv1.TLSProtocolType:
		return []string{"TLSRoute"}
	case gatewayv1.TCPProtocolType:
		return []string{"TCPRoute"}
	case gatewayv1.UDPProtocolType:
		return []string{"UDPRoute"}
	}
	return nil
}

func (l *listener) port() Port {
	return Port{l.spec.Port, l.spec.Protocol == gatewayv1.UDPProtocolType}
}

func (l *listener) host() string { return strings.ToLower(string(ptr.Deref(l.spec.Hostname, ""))) }

// supported are the kinds as the status says them.
func (l *listener) supported() []gatewayv1.RouteGroupKind {
	out := []gatewayv1.RouteGroupKind{}
	for _, k := range l.kinds {
		out = append(out, gatewayv1.RouteGroupKind{Group: ptr.To(gatewayv1.Group(Group)), Kind: gatewayv1.Kind(k)})
	}
	return out
}

// listener finds out what a listener can do.
func (c *compiler) listener(l *listener, f from) {
	s := &l.spec
	l.kinds = kindsOf(s.Protocol)
	if l.kinds == nil {
		l.accepted = faultf(gatewayv1.ListenerReasonUnsupportedProtocol, "protocol %s is not served here", s.Protocol)
		return
	}
	if s.AllowedRoutes != nil && len(s.AllowedRoutes.Kinds) > 0 {
		all := l.kinds
		l.kinds = nil
		for _, k := range s.AllowedRoutes.Kinds {
			if ptr.Deref(k.Group, Group) == Group && slices.Contains(all, string(k.Kind)) {
				if !slices.Contains(l.kinds, string(k.Kind)) {
					l.kinds = append(l.kinds, string(k.Kind))
				}
			} else if l.resolved == nil {
				l.resolved = faultf(gatewayv1.ListenerReasonInvalidRouteKinds, "routes of kind %s cannot be served by protocol %s here", k.Kind, s.Protocol)
			}
		}
	}
	l.out.Host = l.host()
	passes := s.TLS != nil && ptr.Deref(s.TLS.Mode, gatewayv1.TLSModeTerminate) == gatewayv1.TLSModePassthrough
	switch {
	case s.Protocol == gatewayv1.TCPProtocolType:
		l.out.Mode = route.Bytes
	case s.Protocol == gatewayv1.UDPProtocolType:
		l.out.Mode = route.Datagrams
	case s.Protocol == gatewayv1.TLSProtocolType && passes:
		l.out.Mode = route.Pass
	case s.Protocol == gatewayv1.TLSProtocolType:
		l.out.Mode = route.Terminate
	case s.Protocol == gatewayv1.HTTPSProtocolType && passes:
		l.accepted = faultf(gatewayv1.ListenerReasonUnsupportedValue, "HTTPS cannot be passed through: protocol TLS can")
		return
	case s.Protocol == gatewayv1.HTTPSProtocolType:
		l.out.Mode = route.Secure
	}
	if l.out.Mode != route.Secure && l.out.Mode != route.Terminate {
		return
	}
	if s.TLS == nil || len(s.TLS.CertificateRefs) == 0 {
		l.unresolved(faultf(gatewayv1.ListenerReasonInvalidCertificateRef, "it names no certificate (tls.certificateRefs)"))
		return
	}
	for i := range s.TLS.CertificateRefs {
		key, bad := c.certificate(l.gateway, f, &s.TLS.CertificateRefs[i])
		if bad != nil {
			l.unresolved(bad)
			continue
		}
		l.out.Certificates = append(l.out.Certificates, key)
	}
	c.clients(l, f)
}

func (l *listener) unresolved(f *fault) {
	if l.resolved == nil {
		l.resolved = f
	}
}

// clients reads which certificates clients must have.
func (c *compiler) clients(l *listener, f from) {
	t := l.gateway.object.Spec.TLS
	if t == nil || t.Frontend == nil || l.spec.Protocol != gatewayv1.HTTPSProtocolType {
		return
	}
	v := t.Frontend.Default.Validation
	for i := range t.Frontend.PerPort {
		if t.Frontend.PerPort[i].Port == l.spec.Port {
			v = t.Frontend.PerPort[i].TLS.Validation
		}
	}
	if v == nil {
		return
	}
	f = from{"Gateway", l.gateway.object.Namespace} // who says it
	out := &route.Clients{Any: v.Mode == gatewayv1.AllowInsecureFallback}
	for _, r := range v.CACertificateRefs {
		namespace := string(ptr.Deref(r.Namespace, gatewayv1.Namespace(f.namespace)))
		if !core(&r.Group) || r.Kind != "ConfigMap" {
			l.unresolved(faultf(gatewayv1.ListenerReasonInvalidCACertificateKind, "certificates of authorities are in a ConfigMap, not in a %s", r.Kind))
			continue
		}
		if !c.granted(f, to{"ConfigMap", namespace, string(r.Name)}) {
			l.unresolved(faultf(gatewayv1.ListenerReasonRefNotPermitted, "no ReferenceGrant of namespace %q lets a Gateway of namespace %q use ConfigMap %q", namespace, f.namespace, r.Name))
			continue
		}
		pem, why := c.authorities(namespace, string(r.Name))
		if why != "" {
			l.unresolved(faultf(gatewayv1.ListenerReasonInvalidCACertificateRef, "%s", why))
			continue
		}
		out.Authorities = append(out.Authorities, pem...)
	}
	if len(out.Authorities) == 0 {
		l.accepted = faultf(gatewayv1.ListenerReasonNoValidCACertificate, "it has no certificate of an authority by which clients are known")
		return
	}
	l.out.Clients = out
}

// good says that the listener is served.
func (l *listener) good() bool { return l.accepted == nil && l.serves() }

// serves says that an edge can do something with the listener.
func (l *listener) serves() bool {
	return (l.out.Mode != route.Secure && l.out.Mode != route.Terminate) || len(l.out.Certificates) > 0
}

// conflicts finds listeners that cannot be served together. Of several objects the one that comes first keeps what it
// has: the Gateway, then the older set (W3). Of one object, none of those that want the same has it.
func (g *gateway) conflicts() {
	var first []*listener // that are served whatever comes
	for rest := g.listeners; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(l *listener) bool { return l.set != rest[0].set })
		if n < 0 {
			n = len(rest)
		}
		of := rest[:n]
		rest = rest[n:]
		for _, l := range of {
			for _, other := range first {
				l.yield(other)
			}
			if l.conflict != nil {
				l.accepted = l.conflict
			}
		}
		for i, l := range of {
			for _, other := range of[:i] {
				l.yield(other)
				other.yield(l)
			}
		}
		for _, l := range of {
			if l.conflict != nil {
				l.accepted = l.conflict
			}
			if l.accepted == nil {
				l.overlap(first)
				first = append(first, l)
			}
		}
	}
}

// yield notes what is in the way of a listener if another one is there.
func (l *listener) yield(to *listener) {
	switch {
	case l.conflict != nil || l.accepted != nil || to.accepted != nil || l.port() != to.port():
	case !together(to.spec.Protocol, l.spec.Protocol):
		l.conflict = faultf(gatewayv1.ListenerReasonProtocolConflict, "port %d is one of protocol %s by listener %q", l.spec.Port, to.spec.Protocol, to.spec.Name)
	case to.host() == l.host():
		l.conflict = faultf(gatewayv1.ListenerReasonHostnameConflict, "listener %q has port %d and the same hostname", to.spec.Name, l.spec.Port)
	}
}

// overlap notes listeners of TLS that have names in common.
func (l *listener) overlap(others []*listener) {
	for _, other := range others {
		if l.spec.Port == other.spec.Port && l.spec.Protocol == gatewayv1.HTTPSProtocolType && other.spec.Protocol == gatewayv1.HTTPSProtocolType &&
			len(shared(other.host(), []string{l.host()})) > 0 {
			l.overlaps, other.overlaps = string(other.spec.Name), string(l.spec.Name)
		}
	}
}

// together says that two protocols can have one port.
func together(a, b gatewayv1.ProtocolType) bool {
	secure := func(p gatewayv1.ProtocolType) bool {
		return p == gatewayv1.HTTPSProtocolType || p == gatewayv1.TLSProtocolType
	}
	return a == b || secure(a) && secure(b)
}

// finished are the conditions.
func (l *listener) finished() []metav1.Condition {
	c := &l.conditions
	whole := l.accepted
	if whole == nil {
		whole = l.gateway.accepted
	}
	unless(c, l.accepted, gatewayv1.ListenerConditionAccepted, gatewayv1.ListenerReasonAccepted)
	unless(c, l.resolved, gatewayv1.ListenerConditionResolvedRefs, gatewayv1.ListenerReasonResolvedRefs)
	switch {
	case l.conflict != nil:
		unless(c, l.conflict, gatewayv1.ListenerConditionProgrammed, "")
		c.set(string(gatewayv1.ListenerConditionConflicted), metav1.ConditionTrue, l.conflict.reason, l.conflict.message)
	case whole != nil:
		unless(c, faultf(gatewayv1.ListenerReasonInvalid, "%s", whole.message), gatewayv1.ListenerConditionProgrammed, "")
	case !l.serves():
		unless(c, faultf(gatewayv1.ListenerReasonInvalid, "%s", l.resolved.message), gatewayv1.ListenerConditionProgrammed, "")
	default:
		yes(c, gatewayv1.ListenerConditionProgrammed, gatewayv1.ListenerReasonProgrammed)
	}
	if l.conflict == nil {
		unless(c, faultf(gatewayv1.ListenerReasonNoConflicts, ""), gatewayv1.ListenerConditionConflicted, "")
	}
	if l.overlaps != "" {
		c.set(string(gatewayv1.ListenerConditionOverlappingTLSConfig), metav1.ConditionTrue, string(gatewayv1.ListenerReasonOverlappingHostnames),
			"listener "+l.overlaps+" has hostnames of this one: clients that use one connection for both are told to open another")
	}
	return c.list
}

// shared are the hosts that a listener and a route have in common. Without hosts a route has those of the listener.
func shared(listener string, hosts []string) (out []string) {
	if len(hosts) == 0 {
		return []string{listener}
	}
	add := func(h string) {
		if !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	for _, h := range hosts {
		switch {
		case listener == "" || h == listener:
			add(h)
		case h == "" || below(listener, h):
			add(listener)
		case below(h, listener):
			add(h)
		}
	}
	return out
}

// below says that all names of a host are among those of a wildcard.
func below(host, wildcard string) bool {
	return strings.HasPrefix(wildcard, "*") && len(host) > len(wildcard)-1 && strings.HasSuffix(host, wildcard[1:]) && host != wildcard
}
