package loopback

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/kemudi/kemudi/internal/cloud/pool"
)

func nodeName(name string) types.NodeName { return types.NodeName(name) }

// balancers keeps the balancers.
type balancers struct{ c *Cloud }

func (w *World) balancer(svc *corev1.Service) int {
	name := cloudprovider.DefaultLoadBalancerName(svc)
	return slices.IndexFunc(w.Balancers, func(b Balancer) bool { return b.Name == name })
}

// key is how the file names a service.
func key(svc *corev1.Service) string { return svc.Namespace + "/" + svc.Name }

// GetLoadBalancer returns the addresses of a service's balancer, if it has one.
func (b balancers) GetLoadBalancer(ctx context.Context, _ string, svc *corev1.Service) (*corev1.LoadBalancerStatus, bool, error) {
	w, err := b.c.read(ctx, "GetLoadBalancer", key(svc))
	if err != nil {
		return nil, false, some(err)
	}
	i := w.balancer(svc)
	if i < 0 {
		return nil, false, nil
	}
	return &corev1.LoadBalancerStatus{Ingress: w.Balancers[i].Ingress}, true, nil
}

// GetLoadBalancerName is upstream's default.
func (b balancers) GetLoadBalancerName(_ context.Context, _ string, svc *corev1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(svc)
}

// EnsureLoadBalancer makes the balancer, or has it as the service says now.
func (b balancers) EnsureLoadBalancer(ctx context.Context, _ string, svc *corev1.Service, nodes []*corev1.Node) (status *corev1.LoadBalancerStatus, err error) {
	err = b.c.change(ctx, "EnsureLoadBalancer", key(svc), func(w *World) error {
		made := Balancer{
			Name: cloudprovider.DefaultLoadBalancerName(svc), Service: key(svc), Sources: svc.Spec.LoadBalancerSourceRanges, Nodes: names(nodes),
		}
		for _, p := range svc.Spec.Ports {
			made.Ports = append(made.Ports, fmt.Sprintf("%d/%s to %d", p.Port, p.Protocol, p.NodePort))
		}
		i := w.balancer(svc)
		if i >= 0 {
			made.Ingress = w.Balancers[i].Ingress
		}
		if made.Ingress, err = w.addresses(svc, made.Ingress); err != nil {
			return err
		}
		status = &corev1.LoadBalancerStatus{Ingress: made.Ingress}
		if i >= 0 {
			w.Balancers[i] = made
		} else {
			w.Balancers = append(w.Balancers, made)
		}
		return nil
	})
	return status, some(err)
}

// addresses are those of a balancer, one of each family of its service: those that it has,
// the one that the service asks for, or the first that are free.
func (w *World) addresses(svc *corev1.Service, has []corev1.LoadBalancerIngress) ([]corev1.LoadBalancerIngress, error) {
	from, err := pool.Parse(w.Pool)
	if err != nil {
		return nil, err
	}
	taken := func(a netip.Addr) bool {
		return slices.ContainsFunc(w.Balancers, func(b Balancer) bool {
			return b.Service != key(svc) && slices.ContainsFunc(b.Ingress, func(in corev1.LoadBalancerIngress) bool { return in.IP == a.String() })
		})
	}
	families := svc.Spec.IPFamilies
	if len(families) == 0 {
		families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	var out []corev1.LoadBalancerIngress
	for _, family := range families {
		six := family == corev1.IPv6Protocol
		if want, err := netip.ParseAddr(svc.Spec.LoadBalancerIP); err == nil && want.Is6() == six {
			if taken(want) || !from.Contains(want) {
				return nil, fmt.Errorf("the address %s is not to be had", want)
			}
			out = append(out, corev1.LoadBalancerIngress{IP: want.String()})
			continue
		}
		if i := slices.IndexFunc(has, func(in corev1.LoadBalancerIngress) bool {
			a, err := netip.ParseAddr(in.IP)
			return err == nil && a.Is6() == six
		}); i >= 0 {
			out = append(out, has[i])
			continue
		}
		a, ok := from.Free(six, taken)
		if !ok {
			return nil, errors.New("no address is left in the pool")
		}
		out = append(out, corev1.LoadBalancerIngress{IP: a.String()})
	}
	return out, nil
}

// UpdateLoadBalancer has the balancer lead to other nodes.
func (b balancers) UpdateLoadBalancer(ctx context.Context, _ string, svc *corev1.Service, nodes []*corev1.Node) error {
	return some(b.c.change(ctx, "UpdateLoadBalancer", key(svc), func(w *World) error {
		i := w.balancer(svc)
		if i < 0 {
			return fmt.Errorf("service %s has no balancer", key(svc))
		}
		w.Balancers[i].Nodes = names(nodes)
		return nil
	}))
}

// EnsureLoadBalancerDeleted removes the balancer; one that is gone is no error.
func (b balancers) EnsureLoadBalancerDeleted(ctx context.Context, _ string, svc *corev1.Service) error {
	return some(b.c.change(ctx, "EnsureLoadBalancerDeleted", key(svc), func(w *World) error {
		if i := w.balancer(svc); i >= 0 {
			w.Balancers = slices.Delete(w.Balancers, i, i+1)
		}
		return nil
	}))
}

// names are the nodes' names, sorted.
func names(nodes []*corev1.Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	slices.Sort(out)
	return out
}
