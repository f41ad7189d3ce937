package gateway

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// Compile makes what edges are told, and the statuses.
func Compile(o Objects) *Result {
	used := map[string]bool{}
	c := &compiler{
		o: o, known: &looked{o.Cluster, used}, grants: map[string][]*gatewayv1.ReferenceGrant{},
		gateways: map[string]*gateway{}, sets: map[string]*set{}, policies: map[string][]*policy{},
		out: &Result{
			Classes: map[string]gatewayv1.GatewayClassStatus{}, Gateways: map[string]*Gateway{}, ListenerSets: map[string]gatewayv1.ListenerSetStatus{},
			HTTPRoutes: map[string][]gatewayv1.RouteParentStatus{}, GRPCRoutes: map[string][]gatewayv1.RouteParentStatus{},
			TLSRoutes: map[string][]gatewayv1.RouteParentStatus{}, TCPRoutes: map[string][]gatewayv1.RouteParentStatus{},
			UDPRoutes: map[string][]gatewayv1.RouteParentStatus{},
			Policies:  map[string][]gatewayv1.PolicyAncestorStatus{}, Used: used,
		},
	}
	for _, g := range o.Grants {
		c.grants[g.Namespace] = append(c.grants[g.Namespace], g)
	}
	c.classes()
	c.allPolicies()
	for _, g := range ordered(o.Gateways) {
		if c.ours[string(g.Spec.GatewayClassName)] {
			c.gateways[Key(g)] = c.gateway(g)
		}
	}
	for _, s := range ordered(o.ListenerSets) {
		c.set(s)
	}
	for _, g := range c.gateways {
		g.conflicts()
	}
	c.routes()
	for _, key := range slices.Sorted(maps.Keys(c.gateways)) {
		c.out.Gateways[key] = c.finish(c.gateways[key])
	}
	for _, s := range c.sets {
		c.out.ListenerSets[Key(s.object)] = s.status()
	}
	c.ancestors()
	return c.out
}

type compiler struct {
	o        Objects
	known    *looked
	out      *Result
	ours     map[string]bool // classes
	grants   map[string][]*gatewayv1.ReferenceGrant
	gateways map[string]*gateway
	sets     map[string]*set
	policies map[string][]*policy // by the service that they are for
}

// gateway is a Gateway of ours on its way.
type gateway struct {
	object    *gatewayv1.Gateway
	listeners []*listener // its own first, then those of its sets
	accepted  *fault
	resolved  *fault
	tooMuch   *fault
	shown     string // key of the certificate that backends are shown
	sets      int32
	table     *Table
	upstreams map[Upstream]bool
}

// set is a ListenerSet of a Gateway of ours.
type set struct {
	object    *gatewayv1.ListenerSet
	refused   *fault
	listeners []*listener
}

// classes says which classes are obeyed.
func (c *compiler) classes() {
	c.ours = map[string]bool{}
	for _, class := range c.o.Classes {
		if class.Spec.ControllerName != ControllerName {
			continue
		}
		c.ours[class.Name] = true
		s := conditions{generation: class.Generation}
		yes(&s, gatewayv1.GatewayClassConditionStatusAccepted, gatewayv1.GatewayClassReasonAccepted)
		var old *fault
		if !strings.HasPrefix(c.o.Bundle, "v1.") {
			old = faultf(gatewayv1.GatewayClassReasonUnsupportedVersion, "the definitions of the Gateway API that are served are of version %q: v1 is what is obeyed", c.o.Bundle)
		}
		unless(&s, old, gatewayv1.GatewayClassConditionStatusSupportedVersion, gatewayv1.GatewayClassReasonSupportedVersion)
		c.out.Classes[class.Name] = gatewayv1.GatewayClassStatus{Conditions: s.list, SupportedFeatures: Features()}
	}
}

// gateway reads a Gateway's own listeners.
func (c *compiler) gateway(o *gatewayv1.Gateway) *gateway {
	g := &gateway{object: o, table: &Table{Certificates: map[string]*route.Certificate{}}, upstreams: map[Upstream]bool{}}
	for _, a := range o.Spec.Addresses {
		if t := ptr.Deref(a.Type, gatewayv1.IPAddressType); t != gatewayv1.IPAddressType {
			g.accepted = faultf(gatewayv1.GatewayReasonUnsupportedAddress, "addresses of type %s are not known here: only %s is", t, gatewayv1.IPAddressType)
		}
	}
	if i := o.Spec.Infrastructure; i != nil && i.ParametersRef != nil {
		g.accepted = faultf(gatewayv1.GatewayReasonInvalidParameters, "spec.infrastructure.parametersRef: there are no parameters of kind %s here", i.ParametersRef.Kind)
	}
	if t := o.Spec.TLS; t != nil && t.Backend != nil && t.Backend.ClientCertificateRef != nil {
		g.shown, g.resolved = c.certificate(g, from{"Gateway", o.Namespace}, t.Backend.ClientCertificateRef)
		if g.resolved != nil && g.resolved.reason == string(gatewayv1.ListenerReasonInvalidCertificateRef) {
			g.resolved.reason = string(gatewayv1.GatewayReasonInvalidClientCertificateRef)
		}
	}
	for i := range o.Spec.Listeners {
		l := &listener{gateway: g, namespace: o.Namespace, spec: o.Spec.Listeners[i], conditions: conditions{generation: o.Generation}}
		g.listeners = append(g.listeners, l)
		c.listener(l, from{"Gateway", o.Namespace})
	}
	return g
}

// set reads the listeners of a set, if its Gateway is ours.
func (c *compiler) set(o *gatewayv1.ListenerSet) {
	p := o.Spec.ParentRef
	g := c.gateways[ParentOf(o)]
	if g == nil {
		return
	}
	s := &set{object: o}
	c.sets[Key(o)] = s
	if !c.allowsSet(g.object, o.Namespace) {
		s.refused = faultf(gatewayv1.ListenerSetReasonNotAllowed, "Gateway %q allows no ListenerSets of namespace %q (spec.allowedListeners)", p.Name, o.Namespace)
		return
	}
	if g.accepted != nil {
		s.refused = faultf(gatewayv1.ListenerSetReasonParentNotAccepted, "Gateway %q is not accepted: %s", p.Name, g.accepted.message)
		return
	}
	for i := range o.Spec.Listeners {
		l := &listener{
			gateway: g, namespace: o.Namespace, set: s, conditions: conditions{generation: o.Generation}, spec: listenerOf(&o.Spec.Listeners[i]),
		}
		s.listeners = append(s.listeners, l)
		g.listeners = append(g.listeners, l)
		c.listener(l, from{"ListenerSet", o.Namespace})
	}
}

// listenerOf is a listener of a set as those of Gateways are.
func listenerOf(e *gatewayv1.ListenerEntry) gatewayv1.Listener {
	return gatewayv1.Listener{Name: e.Name, Hostname: e.Hostname, Port: e.Port, Protocol: e.Protocol, TLS: e.TLS, AllowedRoutes: e.AllowedRoutes}
}

func (c *compiler) allowsSet(g *gatewayv1.Gateway, namespace string) bool {
	a := g.Spec.AllowedListeners
	if a == nil || a.Namespaces == nil {
		return false
	}
	return c.within(ptr.Deref(a.Namespaces.From, gatewayv1.NamespacesFromNone), a.Namespaces.Selector, [2]string{g.Namespace, namespace})
}

// within says that the second namespace is one that the first allows.
func (c *compiler) within(f gatewayv1.FromNamespaces, selector *metav1.LabelSelector, of [2]string) bool {
	switch f {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return of[0] == of[1]
	case gatewayv1.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(selector)
		n := c.known.Namespace(of[1])
		return err == nil && n != nil && s.Matches(labelsOf(n))
	}
	return false
}

// status is what is said of a set.
func (s *set) status() gatewayv1.ListenerSetStatus {
	c := conditions{generation: s.object.Generation}
	var out gatewayv1.ListenerSetStatus
	bad, good := 0, 0
	for _, l := range s.listeners {
		if l.good() {
			good++
		} else {
			bad++
		}
		out.Listeners = append(out.Listeners, gatewayv1.ListenerEntryStatus{
			Name: l.spec.Name, SupportedKinds: l.supported(), AttachedRoutes: l.attached, Conditions: l.finished(),
		})
	}
	switch {
	case s.refused != nil:
	case good == 0:
		s.refused = faultf(gatewayv1.ListenerSetReasonListenersNotValid, "none of its listeners can be used")
	}
	if s.refused != nil {
		unless(&c, s.refused, gatewayv1.ListenerSetConditionAccepted, "")
		unless(&c, s.refused, gatewayv1.ListenerSetConditionProgrammed, "")
	} else {
		reason := gatewayv1.ListenerSetReasonAccepted
		if bad > 0 {
			reason = gatewayv1.ListenerSetReasonListenersNotValid
		}
		yes(&c, gatewayv1.ListenerSetConditionAccepted, reason)
		yes(&c, gatewayv1.ListenerSetConditionProgrammed, gatewayv1.ListenerSetReasonProgrammed)
	}
	out.Conditions = c.list
	return out
}

// finish makes the table and the status of a Gateway.
func (c *compiler) finish(g *gateway) *Gateway {
	o := g.object
	out := &Gateway{Object: o, Table: g.table}
	place := c.known.Place(Key(o))
	doors := map[Port]*route.Door{}
	s := conditions{generation: o.Generation}
	good, bad := 0, 0
	for _, l := range g.listeners {
		if l.set == nil {
			if l.accepted == nil {
				good++
			} else {
				bad++
			}
		}
		if l.accepted != nil || g.accepted != nil {
			continue
		}
		port := l.port()
		if !slices.Contains(out.Ports, port) {
			out.Ports = append(out.Ports, port)
		}
		at := place.Ports[port]
		if at == 0 || !l.serves() {
			continue
		}
		if doors[port] == nil {
			doors[port] = &route.Door{Port: at, Public: uint16(port.Number), Vouch: c.vouch(g, port)}
		}
		d := doors[port]
		d.Listeners = append(d.Listeners, l.out)
	}
	slices.SortFunc(out.Ports, Port.Compare)
	for _, port := range slices.SortedFunc(maps.Keys(doors), Port.Compare) {
		g.table.Doors = append(g.table.Doors, doors[port])
	}
	g.table.Upstreams = slices.SortedFunc(maps.Keys(g.upstreams), func(a, b Upstream) int { return cmp.Compare(a.Key(), b.Key()) })
	for _, one := range c.sets {
		if one.refused == nil && slices.ContainsFunc(one.listeners, func(l *listener) bool { return l.gateway == g && l.good() }) {
			g.sets++
		}
	}
	if g.accepted == nil && good == 0 && g.sets == 0 {
		g.accepted = faultf(gatewayv1.GatewayReasonListenersNotValid, "none of its listeners can be used")
	}
	reason := gatewayv1.GatewayReasonAccepted
	if bad > 0 {
		reason = gatewayv1.GatewayReasonListenersNotValid
	}
	unless(&s, g.accepted, gatewayv1.GatewayConditionAccepted, reason)
	if len(g.table.Doors) > 0 {
		var err error
		if out.Packed, err = g.table.Pack(); err != nil {
			g.tooMuch = faultf(gatewayv1.GatewayReasonNoResources, "%v", err)
		}
	}
	unless(&s, g.programmed(&place), gatewayv1.GatewayConditionProgrammed, gatewayv1.GatewayReasonProgrammed)
	g.more(&s)
	for _, a := range place.Addresses {
		out.Status.Addresses = append(out.Status.Addresses, gatewayv1.GatewayStatusAddress{Type: ptr.To(gatewayv1.IPAddressType), Value: a})
	}
	for _, l := range g.listeners {
		if l.set == nil {
			out.Status.Listeners = append(out.Status.Listeners, gatewayv1.ListenerStatus{
				Name: l.spec.Name, SupportedKinds: l.supported(), AttachedRoutes: l.attached, Conditions: l.finished(),
			})
		}
	}
	out.Status.Conditions, out.Status.AttachedListenerSets = s.list, ptr.To(g.sets)
	return out
}

// programmed is why no edge serves a Gateway.
func (g *gateway) programmed(place *Place) *fault {
	switch {
	case g.accepted != nil:
		return faultf(gatewayv1.GatewayReasonInvalid, "%s", g.accepted.message)
	case g.tooMuch != nil:
		return g.tooMuch
	case place.Refused != "":
		return faultf(gatewayv1.GatewayReasonAddressNotUsable, "%s", place.Refused)
	case len(place.Addresses) == 0:
		return faultf(gatewayv1.GatewayReasonAddressNotAssigned, "%s", cmp.Or(place.Waiting, "no address has been assigned yet"))
	}
	return nil
}

// more are the conditions that only some Gateways have.
func (g *gateway) more(s *conditions) {
	t := g.object.Spec.TLS
	if t == nil {
		return
	}
	if t.Backend != nil && t.Backend.ClientCertificateRef != nil {
		unless(s, g.resolved, gatewayv1.GatewayConditionResolvedRefs, gatewayv1.GatewayReasonResolvedRefs)
	}
	if slices.ContainsFunc(g.listeners, func(l *listener) bool { return l.out.Clients != nil && l.out.Clients.Any }) {
		yes(s, gatewayv1.GatewayConditionInsecureFrontendValidationMode, gatewayv1.GatewayReasonConfigurationChanged)
	}
}
