package cloud

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

// routePlan is what is to be done to the cloud's routes.
type routePlan struct {
	drop []*cloudprovider.Route
	make []newRoute
	// routed are the nodes that there are routes to, right or wrong.
	routed map[types.NodeName][]*cloudprovider.Route
}

// newRoute is a route that is to be made, for a node.
type newRoute struct {
	node  *corev1.Node
	route *cloudprovider.Route
}

// key names the route among those that are to be made.
func (n newRoute) key() string { return n.node.Name + " " + n.route.DestinationCIDR }

// about is what the cloud makes it by.
func (n newRoute) about() string { return fmt.Sprint(n.node.UID, n.route.TargetNodeAddresses) }

// planRoutes compares the cloud's routes with the nodes. Routes beyond the cluster's addresses
// are somebody else's.
func planRoutes(nodes []*corev1.Node, routes []*cloudprovider.Route, cluster []netip.Prefix) (p routePlan) {
	p.routed = map[types.NodeName][]*cloudprovider.Route{}
	for _, r := range routes {
		p.routed[r.TargetNode] = append(p.routed[r.TargetNode], r)
	}
	right := map[*cloudprovider.Route]bool{}
	for _, node := range nodes {
		for _, cidr := range node.Spec.PodCIDRs {
			there := false
			for _, r := range p.routed[types.NodeName(node.Name)] {
				if leads(r, node, cidr) {
					right[r], there = true, true
				}
			}
			if there {
				continue
			}
			p.make = append(p.make, newRoute{node, &cloudprovider.Route{
				TargetNode: types.NodeName(node.Name), TargetNodeAddresses: node.Status.Addresses, DestinationCIDR: cidr,
			}})
		}
	}
	for _, r := range routes {
		if !right[r] && within(cluster, r.DestinationCIDR) {
			p.drop = append(p.drop, r)
		}
	}
	slices.SortStableFunc(p.make, func(a, b newRoute) int { return cmp.Compare(a.node.Name, b.node.Name) })
	return p
}

// leads says that a route to a node is the one that it should have.
func leads(r *cloudprovider.Route, node *corev1.Node, cidr string) bool {
	return r.DestinationCIDR == cidr && !r.Blackhole &&
		(!r.EnableNodeAddresses || sameSet(r.TargetNodeAddresses, node.Status.Addresses))
}

// sameSet says that two lists of addresses differ in order alone.
func sameSet(a, b []corev1.NodeAddress) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x corev1.NodeAddress) bool { return !slices.Contains(b, x) })
}

// within says that a range is of the cluster's addresses, or begins as these do; what is no
// range is not.
func within(cluster []netip.Prefix, cidr string) bool {
	p, err := netip.ParsePrefix(cidr)
	return err == nil && slices.ContainsFunc(cluster, func(c netip.Prefix) bool {
		return c.Overlaps(p) && (c.Bits() <= p.Bits() || c.Contains(p.Masked().Addr()))
	})
}
