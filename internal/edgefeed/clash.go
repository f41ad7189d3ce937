package edgefeed

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/cache"
)

// clashes knows the Services of type LoadBalancer, those of Gateways among them, that have a port of Ingresses at an
// address of the node: what is sent there is theirs before it comes to the edge. People are told. It belongs to who
// owns the models.
type clashes struct {
	f    *Feeder
	told map[string]string // port and address, by key of the Service
}

// look looks at a Service that has changed; nil: it is gone.
func (c *clashes) look(key string, svc *corev1.Service) {
	at := c.at(svc)
	was := c.told[key]
	switch {
	case at == was:
	case at == "":
		delete(c.told, key)
		c.f.event(corev1.EventTypeNormal, "IngressPortServed", fmt.Sprintf("Service %s leaves %s to Ingresses now", key, was))
	default:
		c.told[key] = at
		c.f.event(corev1.EventTypeWarning, "IngressPortTaken", fmt.Sprintf(
			"Service %s has %s: what is sent there does not come to Ingresses; give it an address of a pool (--load-balancer), or Ingresses another port (--ingress-http-port, --ingress-https-port)", key, at))
	}
}

// at says which port of Ingresses a Service has at an address of the node; empty: none.
func (c *clashes) at(svc *corev1.Service) string {
	if svc == nil || svc.Spec.Type != corev1.ServiceTypeLoadBalancer || len(svc.Status.LoadBalancer.Ingress) == 0 {
		return ""
	}
	n := c.f.node()
	if n == nil {
		return ""
	}
	for _, p := range svc.Spec.Ports {
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP || p.Port != int32(c.f.o.Ports.HTTP) && p.Port != int32(c.f.o.Ports.HTTPS) {
			continue
		}
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if ptr.Deref(in.IPMode, corev1.LoadBalancerIPModeVIP) == corev1.LoadBalancerIPModeVIP &&
				slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == in.IP }) {
				return fmt.Sprintf("port %d of address %s of the node", p.Port, in.IP)
			}
		}
	}
	return ""
}

// changed has a change of a Service looked at, where Ingresses are served.
func (c *clashes) changed(d cache.Delta) {
	if c == nil {
		return
	}
	var now *corev1.Service
	if d.Now != nil {
		now = d.Now.Object.(*corev1.Service)
	}
	c.look(d.Last().Key, now)
}
