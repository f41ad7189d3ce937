package edgefeed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
)

// clashes knows the Services of type LoadBalancer, those of Gateways among them, that have a port of Ingresses at an
// address of the node: what is sent there is theirs before it comes to the edge. People are told. It outlives each
// edge, so that what one of them has been told of is taken back. Safe for concurrent use.
type clashes struct {
	f        *Feeder
	services client.Reader[*corev1.Service]

	mu struct {
		sync.Mutex
		served bool                 // Ingresses are
		node   []corev1.NodeAddress // nil: the node is not known
		told   map[string]string    // port and address, by key of the Service
	}
}

func newClashes(f *Feeder, services client.Reader[*corev1.Service]) *clashes {
	c := &clashes{f: f, services: services}
	c.mu.told = map[string]string{}
	return c
}

// follow has the Services looked at again when the node has other addresses.
func (c *clashes) follow(ctx context.Context) error {
	nodes := client.Cached(c.f.o.Transport, core.Nodes, "metadata.name="+c.f.o.NodeName)
	return nodes.Each(ctx, cache.FollowOptions{}, func([]cache.Delta) error {
		var now []corev1.NodeAddress
		if n, ok := nodes.Get("", c.f.o.NodeName); ok {
			now = n.Status.Addresses
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if !slices.Equal(now, c.mu.node) {
			c.mu.node = now
			c.lookAtAll()
		}
		return nil
	})
}

// changed takes in which Services have changed, and whether Ingresses are served now.
func (c *clashes) changed(deltas []cache.Delta, served bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if served != c.mu.served {
		c.mu.served = served
		clear(c.mu.told)
		c.lookAtAll()
		return
	}
	for _, d := range deltas {
		last := d.Last().Object.(*corev1.Service)
		c.look(last.Namespace, last.Name)
	}
}

// lookAtAll looks at each Service there is, and at each that was told of.
func (c *clashes) lookAtAll() {
	if c.mu.node == nil || !c.mu.served {
		return
	}
	for key := range c.mu.told {
		namespace, name, _ := strings.Cut(key, "/")
		c.look(namespace, name)
	}
	for _, svc := range c.services.List("", nil) {
		c.look(svc.Namespace, svc.Name)
	}
}

// look looks at a Service as it is now.
func (c *clashes) look(namespace, name string) {
	if c.mu.node == nil || !c.mu.served {
		return
	}
	key := cache.Key(namespace, name)
	at, was := "", c.mu.told[key]
	if svc, ok := c.services.Get(namespace, name); ok {
		at = c.at(svc)
	}
	switch {
	case at == was:
	case at == "":
		delete(c.mu.told, key)
		c.f.event(corev1.EventTypeNormal, "IngressPortServed", fmt.Sprintf("Service %s leaves %s to Ingresses now", key, was))
	default:
		c.mu.told[key] = at
		c.f.event(corev1.EventTypeWarning, "IngressPortTaken", fmt.Sprintf(
			"Service %s has %s: what is sent there does not come to Ingresses; give it an address of a pool (--load-balancer), or Ingresses another port (--ingress-http-port, --ingress-https-port)", key, at))
	}
}

// at says which port of Ingresses a Service has at an address of the node; empty: none.
func (c *clashes) at(svc *corev1.Service) string {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return ""
	}
	for _, p := range svc.Spec.Ports {
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP || p.Port != int32(c.f.o.Ports.HTTP) && p.Port != int32(c.f.o.Ports.HTTPS) {
			continue
		}
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if ptr.Deref(in.IPMode, corev1.LoadBalancerIPModeVIP) == corev1.LoadBalancerIPModeVIP &&
				slices.ContainsFunc(c.mu.node, func(a corev1.NodeAddress) bool { return a.Address == in.IP }) {
				return fmt.Sprintf("port %d of address %s of the node", p.Port, in.IP)
			}
		}
	}
	return ""
}
