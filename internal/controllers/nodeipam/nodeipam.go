// Package nodeipam gives every node its share of the cluster's pod addresses.
package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
)

// Options say what is divided.
type Options struct {
	CIDRs []netip.Prefix // one, or one of each family
	// Bits4 and Bits6 are how long the prefix of a node's share is
	// (--node-cidr-mask-size-ipv4, default 24; -ipv6, default 64).
	Bits4, Bits6 int
}

func (o Options) withDefaults() Options {
	if o.Bits4 == 0 {
		o.Bits4 = 24
	}
	if o.Bits6 == 0 {
		o.Bits6 = 64
	}
	return o
}

// New returns the node IPAM controller.
func New(o Options) *controller.Controller {
	o = o.withDefaults()
	return controller.New(controller.Spec[*corev1.Node]{
		Name:    "node-ipam-controller",
		For:     core.Nodes,
		Writes:  []controller.Grant{controller.Update(core.Nodes.Def)},
		Workers: 1, // two nodes must not take the same share
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Node] {
			r := &reconciler{k: k, o: o, nodes: controller.For(k, core.Nodes)}
			r.mu.given = map[string]string{}
			return r
		},
	})
}

type reconciler struct {
	k     *controller.Kit
	o     Options
	nodes controller.Client[*corev1.Node]
	mu    struct {
		sync.Mutex
		given map[string]string // node name by share: also those that the cache does not show yet
	}
}

// Reconcile gives a node its shares, for good.
func (r *reconciler) Reconcile(ctx context.Context, node *corev1.Node) (controller.Next, error) {
	if len(node.Spec.PodCIDRs) > 0 || node.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	shares, err := r.take(node.Name)
	if err != nil {
		r.k.Events.Event(node, corev1.EventTypeNormal, "CIDRNotAvailable", fmt.Sprintf("Node %s status is now: CIDRNotAvailable", node.Name))
		return controller.Done, err
	}
	node = node.DeepCopy()
	node.Spec.PodCIDR, node.Spec.PodCIDRs = shares[0], shares
	_, err = r.nodes.Update(ctx, node)
	return controller.Done, err
}

// Gone frees the shares of a node that was deleted.
func (r *reconciler) Gone(_ context.Context, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for share, node := range r.mu.given {
		if node == name {
			delete(r.mu.given, share)
		}
	}
	return nil
}

// take finds the first free share of each family.
func (r *reconciler) take(name string) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.nodes.List("", nil) {
		for _, share := range n.Spec.PodCIDRs {
			r.mu.given[share] = n.Name
		}
	}
	var shares []string
	for _, cidr := range r.o.CIDRs {
		share, ok := firstFree(cidr, r.o.bits(cidr), func(p netip.Prefix) bool {
			owner, taken := r.mu.given[p.String()]
			return !taken || owner == name
		})
		if !ok {
			return nil, fmt.Errorf("%s: %w", cidr, errExhausted)
		}
		shares = append(shares, share.String())
	}
	for _, share := range shares {
		r.mu.given[share] = name
	}
	return shares, nil
}

var errExhausted = errors.New("no addresses are left for another node")

// bits is how long the prefix of a share of a CIDR is; a small CIDR is one share.
func (o *Options) bits(cidr netip.Prefix) int {
	if cidr.Addr().Is6() {
		return max(o.Bits6, cidr.Bits())
	}
	return max(o.Bits4, cidr.Bits())
}

// firstFree walks the shares of a CIDR.
func firstFree(cidr netip.Prefix, bits int, free func(netip.Prefix) bool) (netip.Prefix, bool) {
	for p := netip.PrefixFrom(cidr.Masked().Addr(), bits); cidr.Contains(p.Addr()); p = next(p) {
		if free(p) {
			return p, true
		}
		if !next(p).IsValid() {
			break
		}
	}
	return netip.Prefix{}, false
}

// next is the prefix of the same size that follows; invalid after the last one.
func next(p netip.Prefix) netip.Prefix {
	b := p.Addr().AsSlice()
	for i := (p.Bits() - 1) / 8; i >= 0; i-- {
		step := byte(1)
		if i == (p.Bits()-1)/8 {
			step = 1 << (7 - (p.Bits()-1)%8)
		}
		b[i] += step
		if b[i] >= step {
			a, _ := netip.AddrFromSlice(b)
			return netip.PrefixFrom(a, p.Bits())
		}
	}
	return netip.Prefix{}
}
