package baremetal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/cloud/pool"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// balancers gives services addresses.
type balancers struct{ c *Cloud }

// given is the state: the addresses of each service, by namespace/name and UID.
type given map[string][]netip.Addr

func key(svc *corev1.Service) string {
	return svc.Namespace + "/" + svc.Name + " " + string(svc.UID)
}

// load reads the inventory and the state.
func (b balancers) load() (inv Inventory, state given, err error) {
	if inv, err = b.c.read(); err != nil {
		return inv, nil, err
	}
	data, err := os.ReadFile(inv.State)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return inv, nil, fmt.Errorf("read which addresses are given: %w", err)
	}
	state = given{}
	if err := yaml.Unmarshal(data, &state); err != nil {
		return inv, nil, fmt.Errorf("read which addresses are given, %s: %w", inv.State, err)
	}
	return inv, state, nil
}

func (g given) save(file string) error {
	data, err := yaml.Marshal(g)
	if err != nil {
		return fmt.Errorf("encode which addresses are given: %w", err)
	}
	if err := wholefile.Write(file, data, 0o600); err != nil {
		return fmt.Errorf("write which addresses are given: %w", err)
	}
	return nil
}

func status(addrs []netip.Addr) *corev1.LoadBalancerStatus {
	s := &corev1.LoadBalancerStatus{}
	for _, a := range addrs {
		s.Ingress = append(s.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	return s
}

// GetLoadBalancer returns the addresses of a service, if it has any.
func (b balancers) GetLoadBalancer(_ context.Context, _ string, svc *corev1.Service) (*corev1.LoadBalancerStatus, bool, error) {
	_, state, err := b.load()
	if err != nil {
		return nil, false, err
	}
	addrs, ok := state[key(svc)]
	return status(addrs), ok, nil
}

// GetLoadBalancerName is upstream's default.
func (b balancers) GetLoadBalancerName(_ context.Context, _ string, svc *corev1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(svc)
}

// EnsureLoadBalancer gives a service its addresses, and tells the hook. They are written down
// before anybody hears of them: no two services ever have one.
func (b balancers) EnsureLoadBalancer(ctx context.Context, _ string, svc *corev1.Service, nodes []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	inv, addrs, err := b.give(svc)
	if err != nil {
		return nil, err
	}
	return status(addrs), inv.tell(ctx, svc, addrs, nodes)
}

func (b balancers) give(svc *corev1.Service) (inv Inventory, addrs []netip.Addr, err error) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	inv, state, err := b.load()
	if err != nil {
		return inv, nil, err
	}
	has := state[key(svc)]
	delete(state, key(svc))
	if addrs, err = inv.choose(svc, has, state); err != nil {
		return inv, nil, err
	}
	if slices.Equal(addrs, has) {
		return inv, addrs, nil
	}
	state[key(svc)] = addrs
	return inv, addrs, state.save(inv.State)
}

// choose is the addresses of a service, one of each of its families: the one that it asks for,
// that which it has, or the first that is free.
func (inv *Inventory) choose(svc *corev1.Service, has []netip.Addr, others given) (out []netip.Addr, err error) {
	from, err := pool.Parse(inv.Pool)
	if err != nil {
		return nil, err
	}
	taken := func(a netip.Addr) bool {
		for addrs := range maps.Values(others) {
			if slices.Contains(addrs, a) {
				return true
			}
		}
		return false
	}
	families := svc.Spec.IPFamilies
	if len(families) == 0 {
		families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	for _, family := range families {
		six := family == corev1.IPv6Protocol
		if want, err := netip.ParseAddr(svc.Spec.LoadBalancerIP); err == nil && want.Is6() == six {
			if taken(want) || !from.Contains(want) {
				return nil, fmt.Errorf("spec.loadBalancerIP %s is another service's, or not of the pool", want)
			}
			out = append(out, want)
			continue
		}
		if i := slices.IndexFunc(has, func(a netip.Addr) bool { return a.Is6() == six && from.Contains(a) }); i >= 0 {
			out = append(out, has[i])
			continue
		}
		a, ok := from.Free(six, taken)
		if !ok {
			return nil, fmt.Errorf("no %s address is left in the pool: add some to the inventory", family)
		}
		out = append(out, a)
	}
	return out, nil
}

// tell tells the hook where a service's addresses lead.
func (inv *Inventory) tell(ctx context.Context, svc *corev1.Service, addrs []netip.Addr, nodes []*corev1.Node) error {
	if inv.Hooks.Balancer == "" {
		return nil
	}
	var errs []error
	for _, a := range addrs {
		args := []string{"ensure", a.String(), svc.Namespace + "/" + svc.Name}
		for _, n := range nodes {
			args = append(args, n.Name)
		}
		_, err := inv.Hooks.call(ctx, inv.Hooks.Balancer, args...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// UpdateLoadBalancer tells the hook of other nodes.
func (b balancers) UpdateLoadBalancer(ctx context.Context, _ string, svc *corev1.Service, nodes []*corev1.Node) error {
	inv, state, err := b.load()
	if err != nil {
		return err
	}
	return inv.tell(ctx, svc, state[key(svc)], nodes)
}

// EnsureLoadBalancerDeleted has the hook let go of the addresses, and then gives them back.
func (b balancers) EnsureLoadBalancerDeleted(ctx context.Context, _ string, svc *corev1.Service) error {
	inv, state, err := b.load()
	if err != nil {
		return err
	}
	if inv.Hooks.Balancer != "" {
		for _, a := range state[key(svc)] {
			if _, err := inv.Hooks.call(ctx, inv.Hooks.Balancer, "delete", a.String(), svc.Namespace+"/"+svc.Name); err != nil {
				return err
			}
		}
	}
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if inv, state, err = b.load(); err != nil {
		return err
	}
	if _, ok := state[key(svc)]; !ok {
		return nil
	}
	delete(state, key(svc))
	return state.save(inv.State)
}
