package gateway

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/edge/route"
)

// askedAt is the port at which ACME servers ask for a host.
const askedAt = 80

// Ordered are the hosts for which a Gateway, or a ListenerSet, wants certificates of an ACME server, by the name of the
// Secret of its namespace that they are to be in; nil: it wants none. They are those of its own listeners.
func Ordered(o metav1.Object) (hosts map[string][]string) {
	if !networking.WantsACME(o) {
		return nil
	}
	for _, l := range listenersOf(o) {
		host := strings.ToLower(string(ptr.Deref(l.Hostname, "")))
		if host == "" || l.TLS == nil || ptr.Deref(l.TLS.Mode, gatewayv1.TLSModeTerminate) != gatewayv1.TLSModeTerminate {
			continue
		}
		for _, r := range l.TLS.CertificateRefs {
			if !core(r.Group) || ptr.Deref(r.Kind, "Secret") != "Secret" || string(ptr.Deref(r.Namespace, gatewayv1.Namespace(o.GetNamespace()))) != o.GetNamespace() {
				continue
			}
			if hosts == nil {
				hosts = map[string][]string{}
			}
			if name := string(r.Name); !slices.Contains(hosts[name], host) {
				hosts[name] = append(hosts[name], host)
			}
		}
	}
	return hosts
}

// listenersOf are the listeners of a Gateway, or of a ListenerSet.
func listenersOf(o metav1.Object) (all []gatewayv1.Listener) {
	switch o := o.(type) {
	case *gatewayv1.Gateway:
		return o.Spec.Listeners
	case *gatewayv1.ListenerSet:
		for i := range o.Spec.Listeners {
			all = append(all, listenerOf(&o.Spec.Listeners[i]))
		}
	}
	return all
}

// Askable says that ACME servers can ask a Gateway, if it has the listeners of all of these: that one is where they ask.
func Askable(all ...metav1.Object) bool {
	return slices.ContainsFunc(all, func(o metav1.Object) bool {
		return slices.ContainsFunc(listenersOf(o), func(l gatewayv1.Listener) bool {
			return l.Port == askedAt && l.Protocol == gatewayv1.HTTPProtocolType
		})
	})
}

// ParentOf is the key of the Gateway that a ListenerSet is of; empty: it is of something else.
func ParentOf(s *gatewayv1.ListenerSet) string {
	p := s.Spec.ParentRef
	if ptr.Deref(p.Group, Group) != Group || ptr.Deref(p.Kind, "Gateway") != "Gateway" {
		return ""
	}
	return string(ptr.Deref(p.Namespace, gatewayv1.Namespace(s.Namespace))) + "/" + string(p.Name)
}

// Attached says that a Gateway has taken a ListenerSet. That none of its listeners can be used is no matter: they may be
// without the certificates that are wanted.
func Attached(s *gatewayv1.ListenerSet) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, string(gatewayv1.ListenerSetConditionAccepted))
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == string(gatewayv1.ListenerSetReasonListenersNotValid))
}

// vouch is what edges answer ACME servers that ask at a port of a Gateway: for its own hosts, and for those of the
// ListenerSets that it has taken, by the account that it names.
func (c *compiler) vouch(g *gateway, p Port) *route.Vouch {
	account := g.object.Annotations[networking.AnnotationACMEAccount]
	if p.Number != askedAt || p.UDP || account == "" {
		return nil
	}
	v := &route.Vouch{Account: account}
	add := func(o metav1.Object) {
		for _, hosts := range Ordered(o) {
			v.Hosts = append(v.Hosts, hosts...)
		}
	}
	add(g.object)
	for _, s := range c.sets {
		if s.refused == nil && slices.ContainsFunc(s.listeners, func(l *listener) bool { return l.gateway == g }) {
			add(s.object)
		}
	}
	if len(v.Hosts) == 0 {
		return nil
	}
	slices.Sort(v.Hosts)
	v.Hosts = slices.Compact(v.Hosts)
	return v
}
