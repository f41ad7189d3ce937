package nodeipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Options say how large a node's share is. The zero value is upstream's.
type Options struct {
	// Off says that somebody else gives nodes their shares (--allocate-node-cidrs=false).
	Off bool
	// Bits4 and Bits6 are how long the prefix of a node's share is
	// (--node-cidr-mask-size-ipv4, -ipv6).
	Bits4, Bits6 int
	// Bits is the same of whichever family CIDRs have (--node-cidr-mask-size).
	Bits int
}

// Defaults are the options of a controller that is given none.
func Defaults() Options { return Options{}.withDefaults() }

func (o Options) withDefaults() Options {
	o.Bits4, o.Bits6 = cmp.Or(o.Bits4, o.Bits, 24), cmp.Or(o.Bits6, o.Bits, 64)
	return o
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	for _, err := range []error{
		controller.CheckRange("node-cidr-mask-size", o.Bits, 1, 128),
		controller.CheckRange("node-cidr-mask-size-ipv4", o.Bits4, 1, 32),
		controller.CheckRange("node-cidr-mask-size-ipv6", o.Bits6, 1, 128),
	} {
		if err != nil {
			return err
		}
	}
	if o.Bits != 0 && (o.Bits4 != 0 || o.Bits6 != 0) {
		return errors.New("--node-cidr-mask-size stands for --node-cidr-mask-size-ipv4 or --node-cidr-mask-size-ipv6, not beside them")
	}
	return nil
}

// New returns the node IPAM controller, which divides cidrs: one, or one of each family.
func New(cidrs []netip.Prefix, o Options) *controller.Controller {
	s := &shares{cidrs: cidrs, o: o.withDefaults()}
	freed := controller.Mapped(core.Nodes, func(_ *controller.Kit, n *corev1.Node) []string { return s.freed(n) })
	freed.Same = func(_, _ resource.Object) bool { return true } // nodes have their shares until they go
	return controller.New(controller.Spec[*corev1.Node]{
		Name:    "node-ipam-controller",
		Source:  "cidrAllocator",
		For:     core.Nodes,
		Watches: []controller.Watch{freed},
		Writes:  []controller.Permission{controller.Update(core.Nodes.Def)},
		Workers: 1, // two nodes must not take the same share
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Node] {
			r := &reconciler{k: k, shares: s, nodes: controller.For(k, core.Nodes), metrics: controller.OwnMetrics(k, newMetrics)}
			s.start(r.nodes)
			r.metrics.of.Store(s)
			return r
		},
	})
}

type reconciler struct {
	k      *controller.Kit
	shares *shares
	nodes  controller.Client[*corev1.Node]

	metrics *metrics
}

// Reconcile gives a node its shares, for good. That there are none left is said
// once; the node is looked at again when another one goes.
func (r *reconciler) Reconcile(ctx context.Context, node *corev1.Node) (controller.Next, error) {
	if len(node.Spec.PodCIDRs) > 0 || node.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	shares, first := r.shares.take(node.Name)
	if first {
		r.k.Logger.Warn("no pod addresses are left for another node", "node", node.Name)
		r.k.Events.Event(node, corev1.EventTypeNormal, "CIDRNotAvailable", fmt.Sprintf("Node %s status is now: CIDRNotAvailable", node.Name))
	}
	if shares == nil {
		return controller.Done, nil
	}
	node = node.DeepCopy()
	node.Spec.PodCIDR, node.Spec.PodCIDRs = shares[0], shares
	_, err := r.nodes.Update(ctx, node)
	if err == nil {
		r.metrics.count(r.metrics.given, r.shares.cidrs, shares)
	}
	return controller.Done, err
}

// Gone frees the shares of a node that was deleted.
func (r *reconciler) Gone(_ context.Context, name string) error {
	r.metrics.count(r.metrics.freed, r.shares.cidrs, r.shares.free(name))
	return nil
}

// bits is how long the prefix of a share of a CIDR is; a small CIDR is one share.
func (o Options) bits(cidr netip.Prefix) int {
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
