package gateway

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// The protocols that a port of a service may say it speaks.
const (
	appH2C   = "kubernetes.io/h2c"
	appHTTPS = "https"
	appWSS   = "kubernetes.io/wss"
)

// backend is the service that a reference leads to; if it leads nowhere there is no upstream.
func (b *builder) backend(r *gatewayv1.BackendObjectReference) (out route.Backend) {
	if !core(r.Group) || ptr.Deref(r.Kind, "Service") != "Service" {
		b.fault(faultf(gatewayv1.RouteReasonInvalidKind, "a %s of group %q is no backend here: Services are", ptr.Deref(r.Kind, "Service"), ptr.Deref(r.Group, "")))
		return out
	}
	namespace, name := string(ptr.Deref(r.Namespace, gatewayv1.Namespace(b.namespace))), string(r.Name)
	if !b.c.granted(from{b.kind, b.namespace}, to{"Service", namespace, name}) {
		b.fault(faultf(gatewayv1.RouteReasonRefNotPermitted, "no ReferenceGrant of namespace %q lets a %s of namespace %q use Service %q", namespace, b.kind, b.namespace, name))
		return out
	}
	svc := b.c.known.Service(namespace, name)
	if svc == nil {
		b.fault(faultf(gatewayv1.RouteReasonBackendNotFound, "Service %q does not exist in namespace %q", name, namespace))
		return out
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		b.fault(faultf(gatewayv1.RouteReasonBackendNotFound, "Service %q is of type ExternalName, to which nothing is forwarded", name))
		return out
	}
	udp := b.kind == "UDPRoute"
	fits := func(p *corev1.ServicePort) bool {
		return udp && p.Protocol == corev1.ProtocolUDP || !udp && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP)
	}
	i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return r.Port != nil && p.Port == *r.Port && fits(&p) })
	if i < 0 {
		i = slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return r.Port != nil && p.Port == *r.Port })
	}
	if i < 0 {
		b.fault(faultf(gatewayv1.RouteReasonBackendNotFound, "Service %q of namespace %q has no port %d", name, namespace, ptr.Deref(r.Port, 0)))
		return out
	}
	port := &svc.Spec.Ports[i]
	if !fits(port) {
		b.fault(faultf(gatewayv1.RouteReasonUnsupportedProtocol, "port %d of Service %q is one of %s", port.Port, name, port.Protocol))
		return out
	}
	switch ptr.Deref(port.AppProtocol, "") {
	case appH2C:
		out.Protocol = route.GRPC
	case appHTTPS, appWSS:
		out.Protocol = route.HTTPS
	}
	if b.kind == "GRPCRoute" {
		out.Protocol = route.GRPC
	}
	if p := b.c.policyFor(svc, port); p != nil && !udp {
		p.gateways[Key(b.g.object)] = true
		if p.trust == nil {
			return route.Backend{} // it is to be known by what there is not
		}
		trust := *p.trust
		trust.Certificate = b.g.shown
		out.Trust = &trust
		switch out.Protocol {
		case route.GRPC:
			out.Protocol = route.GRPCS
		case route.HTTP:
			out.Protocol = route.HTTPS
		}
	}
	u := Upstream{namespace, name, port.Port, udp}
	b.g.upstreams[u] = true
	out.Upstream = u.Key()
	return out
}
