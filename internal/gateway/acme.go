package gateway

import (
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/edge/route"
)

// askedAt is the port at which ACME servers ask for a host.
const askedAt = 80

// Ordered are the hosts for which a Gateway wants certificates of an ACME server, by the name of the Secret of its
// namespace that they are to be in; nil: it wants none. They are those of its own listeners.
func Ordered(g *gatewayv1.Gateway) (hosts map[string][]string) {
	if !networking.WantsACME(g) {
		return nil
	}
	for i := range g.Spec.Listeners {
		l := &g.Spec.Listeners[i]
		host := strings.ToLower(string(ptr.Deref(l.Hostname, "")))
		if host == "" || l.TLS == nil || ptr.Deref(l.TLS.Mode, gatewayv1.TLSModeTerminate) != gatewayv1.TLSModeTerminate {
			continue
		}
		for _, r := range l.TLS.CertificateRefs {
			if !core(r.Group) || ptr.Deref(r.Kind, "Secret") != "Secret" || string(ptr.Deref(r.Namespace, gatewayv1.Namespace(g.Namespace))) != g.Namespace {
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

// Askable says that ACME servers can ask a Gateway: that it has a listener where they do.
func Askable(g *gatewayv1.Gateway) bool {
	return slices.ContainsFunc(g.Spec.Listeners, func(l gatewayv1.Listener) bool {
		return l.Port == askedAt && l.Protocol == gatewayv1.HTTPProtocolType
	})
}

// vouch is what edges answer ACME servers that ask at a port of a Gateway.
func vouch(g *gatewayv1.Gateway, p Port) *route.Vouch {
	account := g.Annotations[networking.AnnotationACMEAccount]
	if p.Number != askedAt || p.UDP || account == "" {
		return nil
	}
	v := &route.Vouch{Account: account}
	for _, hosts := range Ordered(g) {
		v.Hosts = append(v.Hosts, hosts...)
	}
	if len(v.Hosts) == 0 {
		return nil
	}
	slices.Sort(v.Hosts)
	v.Hosts = slices.Compact(v.Hosts)
	return v
}
