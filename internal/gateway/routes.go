package gateway

import (
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// aRoute is a route of any kind on its way.
type aRoute struct {
	object  metav1.Object
	kind    string
	parents []gatewayv1.ParentReference
	hosts   []string
	// rules makes what the route does for a Gateway.
	rules func(b *builder)
	out   map[string][]gatewayv1.RouteParentStatus
}

func hostsOf(list []gatewayv1.Hostname) (out []string) {
	for _, h := range list {
		out = append(out, strings.ToLower(string(h)))
	}
	return out
}

// routes attaches all routes, the older ones first.
func (c *compiler) routes() {
	var all []*aRoute
	for _, r := range c.o.HTTPRoutes {
		all = append(all, &aRoute{r, "HTTPRoute", r.Spec.ParentRefs, hostsOf(r.Spec.Hostnames), func(b *builder) { b.http(r) }, c.out.HTTPRoutes})
	}
	for _, r := range c.o.GRPCRoutes {
		all = append(all, &aRoute{r, "GRPCRoute", r.Spec.ParentRefs, hostsOf(r.Spec.Hostnames), func(b *builder) { b.grpc(r) }, c.out.GRPCRoutes})
	}
	for _, r := range c.o.TLSRoutes {
		all = append(all, &aRoute{r, "TLSRoute", r.Spec.ParentRefs, hostsOf(r.Spec.Hostnames), func(b *builder) { b.tls(r) }, c.out.TLSRoutes})
	}
	for _, r := range c.o.TCPRoutes {
		all = append(all, &aRoute{r, "TCPRoute", r.Spec.ParentRefs, nil, func(b *builder) { b.tcp(r) }, c.out.TCPRoutes})
	}
	for _, r := range c.o.UDPRoutes {
		all = append(all, &aRoute{r, "UDPRoute", r.Spec.ParentRefs, nil, func(b *builder) { b.udp(r) }, c.out.UDPRoutes})
	}
	slices.SortStableFunc(all, func(a, b *aRoute) int { return older(a.object, b.object) })
	for _, r := range all {
		for i := range r.parents {
			c.attach(r, &r.parents[i])
		}
	}
}

// parent are the listeners that a route's parent has, and the Gateway that they belong to; nil: it is not ours.
func (c *compiler) parent(r *aRoute, p *gatewayv1.ParentReference) (*gateway, []*listener) {
	if ptr.Deref(p.Group, Group) != Group {
		return nil, nil
	}
	key := string(ptr.Deref(p.Namespace, gatewayv1.Namespace(r.object.GetNamespace()))) + "/" + string(p.Name)
	switch ptr.Deref(p.Kind, "Gateway") {
	case "Gateway":
		g := c.gateways[key]
		if g == nil {
			return nil, nil
		}
		return g, slices.DeleteFunc(slices.Clone(g.listeners), func(l *listener) bool { return l.set != nil })
	case "ListenerSet":
		s := c.sets[key]
		if s == nil {
			return nil, nil
		}
		p := s.object.Spec.ParentRef
		return c.gateways[string(ptr.Deref(p.Namespace, gatewayv1.Namespace(s.object.Namespace)))+"/"+string(p.Name)], s.listeners
	}
	return nil, nil
}

// attach attaches a route to the listeners of one of its parents, and says what has become of that.
func (c *compiler) attach(r *aRoute, p *gatewayv1.ParentReference) {
	g, listeners := c.parent(r, p)
	if g == nil {
		return
	}
	generation := r.object.GetGeneration()
	b := &builder{c: c, g: g, kind: r.kind, namespace: r.object.GetNamespace()}
	r.rules(b)
	var why *fault
	worst := func(f *fault, rank int) {
		ranks := map[string]int{
			"": -1, string(gatewayv1.RouteReasonNoMatchingParent): 0, string(gatewayv1.RouteReasonNotAllowedByListeners): 1, string(gatewayv1.RouteReasonNoMatchingListenerHostname): 2,
			string(gatewayv1.ListenerReasonHostnameConflict): 3,
		}
		if why == nil || ranks[why.reason] < rank {
			why = f
		}
	}
	worst(faultf(gatewayv1.RouteReasonNoMatchingParent, "no listener has the section or the port of the reference"), 0)
	attached := false
	for _, l := range listeners {
		if p.SectionName != nil && *p.SectionName != l.spec.Name || p.Port != nil && *p.Port != l.spec.Port {
			continue
		}
		if !slices.Contains(l.kinds, r.kind) || !c.allowsRoute(l, r.object.GetNamespace()) {
			worst(faultf(gatewayv1.RouteReasonNotAllowedByListeners, "listener %q allows no %s of namespace %q", l.spec.Name, r.kind, r.object.GetNamespace()), 1)
			continue
		}
		hosts := shared(l.host(), r.hosts)
		if len(hosts) == 0 {
			worst(faultf(gatewayv1.RouteReasonNoMatchingListenerHostname, "no hostname of the route is one of listener %q", l.spec.Name), 2)
			continue
		}
		if l.accepted != nil {
			worst(faultf(gatewayv1.RouteReasonNoMatchingParent, "listener %q cannot be used: %s", l.spec.Name, l.accepted.message), 0)
			continue
		}
		if host, other := l.rival(r.kind, hosts); other {
			worst(faultf(gatewayv1.ListenerReasonHostnameConflict, "listener %q has an older %s for host %q, and one host can have routes of one kind alone", l.spec.Name, rivals[r.kind], host), 3)
			continue
		}
		attached = true
		if b.refused == nil {
			l.take(b.site(r, hosts))
			l.occupy(r.kind, hosts)
		}
	}
	if attached {
		why = b.refused
	}
	s := conditions{generation: generation}
	unless(&s, why, gatewayv1.RouteConditionAccepted, gatewayv1.RouteReasonAccepted)
	unless(&s, b.unresolved, gatewayv1.RouteConditionResolvedRefs, gatewayv1.RouteReasonResolvedRefs)
	if b.partly != nil && b.refused == nil {
		s.set(string(gatewayv1.RouteConditionPartiallyInvalid), metav1.ConditionTrue, b.partly.reason, b.partly.message)
	}
	key := Key(r.object)
	r.out[key] = append(r.out[key], gatewayv1.RouteParentStatus{ParentRef: *p, ControllerName: ControllerName, Conditions: s.list})
}

// take attaches a route. One that names the listener by two of its parents is there already: its parents are looked at
// one after the other.
func (l *listener) take(s *route.Site) {
	if n := len(l.out.Sites); n > 0 && l.out.Sites[n-1].Key == s.Key {
		return
	}
	l.attached++
	l.out.Sites = append(l.out.Sites, s)
}

func (c *compiler) allowsRoute(l *listener, namespace string) bool {
	a := l.spec.AllowedRoutes
	if a == nil || a.Namespaces == nil {
		return l.namespace == namespace
	}
	return c.within(ptr.Deref(a.Namespaces.From, gatewayv1.NamespacesFromSame), a.Namespaces.Selector, [2]string{l.namespace, namespace})
}

// builder makes of one route what edges do, for one Gateway.
type builder struct {
	c          *compiler
	g          *gateway
	kind       string
	namespace  string
	rules      []route.Rule // without hosts
	actions    []route.Action
	refused    *fault // nothing of it can be done
	unresolved *fault // a reference leads nowhere
	partly     *fault // some rule cannot be done
	good       int    // rules that can be done
}

// site is what the route is to a listener.
func (b *builder) site(r *aRoute, hosts []string) *route.Site {
	key := Key(r.object)
	if r.kind != "HTTPRoute" {
		key += " " + r.kind
	}
	s := &route.Site{Key: key, Created: r.object.GetCreationTimestamp().Unix(), Actions: b.actions}
	for _, h := range hosts {
		for _, rule := range b.rules {
			rule.Host = h
			s.Rules = append(s.Rules, rule)
		}
	}
	return s
}

// add adds what is done for some matches; f is why it cannot be done: requests are answered by 500 then (W4).
func (b *builder) add(matches []route.Rule, do route.Action, f *fault) {
	if f != nil {
		do = route.Action{}
		if b.partly == nil {
			b.partly = f
		}
	} else {
		b.good++
	}
	b.actions = append(b.actions, do)
	for _, m := range matches {
		m.Do = len(b.actions)
		b.rules = append(b.rules, m)
	}
}

// end says that a route of which nothing can be done is refused.
func (b *builder) end() {
	if b.partly != nil && b.good == 0 {
		b.refused = faultf(gatewayv1.RouteReasonUnsupportedValue, "%s", b.partly.message)
	}
}

// fault notes a reference that leads nowhere.
func (b *builder) fault(f *fault) {
	if b.unresolved == nil {
		b.unresolved = f
	}
}

// weighted is a backend of a route; one that cannot be used has no upstream.
func (b *builder) weighted(r *gatewayv1.BackendRef) route.Backend {
	out := b.backend(&r.BackendObjectReference)
	out.Weight = int(ptr.Deref(r.Weight, 1))
	return out
}

// tls reads the one rule of a TLSRoute.
func (b *builder) tls(r *gatewayv1.TLSRoute) {
	for i := range r.Spec.Rules {
		b.stream(r.Spec.Rules[i].BackendRefs)
	}
}

// tcp reads the one rule of a TCPRoute.
func (b *builder) tcp(r *gatewayv1.TCPRoute) {
	for i := range r.Spec.Rules {
		b.stream(r.Spec.Rules[i].BackendRefs)
	}
}

// udp reads the one rule of a UDPRoute.
func (b *builder) udp(r *gatewayv1.UDPRoute) {
	for i := range r.Spec.Rules {
		b.stream(r.Spec.Rules[i].BackendRefs)
	}
}

func (b *builder) stream(refs []gatewayv1.BackendRef) {
	do := route.Action{}
	for i := range refs {
		do.Backends = append(do.Backends, b.weighted(&refs[i]))
	}
	b.add([]route.Rule{{Type: route.Prefix}}, do, nil)
}
