package worker

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/podnet"
)

// AnnotationVXLANAddress is set by people on a Node that is behind address translation:
// the address, or one of each family with a comma between, to which other nodes send VXLAN.
// A port may follow, as in "203.0.113.7:4790", by which several nodes behind one address are
// told apart. Those use their own addresses among themselves.
const AnnotationVXLANAddress = "kemudi.io/vxlan-address"

// followNodes tells the pod network of the other nodes, until ctx ends. Until the API has
// said which they are, what an earlier process knew stays as it is.
func (w *Worker) followNodes(ctx context.Context, routes *podnet.Routes) error {
	complain := func(err error) {
		if err != nil && ctx.Err() == nil {
			w.o.Logger.Warn("cannot reach the pods of another node", "err", err)
		}
	}
	known := false
	n := neighbourhood{peers: map[string]podnet.Peer{}, nodes: map[string]*corev1.Node{}}
	return client.Cached(w.c.Transport, core.Nodes, "").Each(ctx, cache.FollowOptions{}, func(deltas []cache.Delta) error {
		for _, d := range deltas {
			var node *corev1.Node
			if d.Now != nil {
				node = d.Now.Object.(*corev1.Node)
			}
			for _, name := range n.hears(d.Last().Key, node, w.o.NodeName) {
				if is, has := n.peers[name]; has {
					complain(routes.Update(ctx, name, is))
				} else {
					complain(routes.Delete(ctx, name))
				}
			}
		}
		if !known {
			known = true
			complain(routes.Prune(ctx))
		}
		return nil
	})
}

// neighbourhood is what a node knows of the others.
type neighbourhood struct {
	site  []netip.AddrPort // what its own address is translated to
	nodes map[string]*corev1.Node
	peers map[string]podnet.Peer
}

// hears takes in what a node is like now, nil if it is gone, and returns the names of the
// nodes whose pods are reached in another way than before, or are not any more.
func (n *neighbourhood) hears(name string, node *corev1.Node, own string) (changed []string) {
	if name == own {
		was := n.site
		if n.site = translated(node); slices.Equal(was, n.site) {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(n.nodes)) {
			if n.places(name) {
				changed = append(changed, name)
			}
		}
		return changed
	}
	if n.nodes[name] = node; node == nil {
		delete(n.nodes, name)
	}
	if n.places(name) {
		return []string{name}
	}
	return nil
}

// places finds out how the pods of a node are reached, and reports whether that is news.
func (n *neighbourhood) places(name string) bool {
	was, had := n.peers[name]
	is, has := peerOf(n.nodes[name], n.site)
	if has {
		n.peers[name] = is
	} else {
		delete(n.peers, name)
	}
	return has != had || has && !was.Equal(is)
}

// peerOf is what the pod network must know of a node; ok is false if there is nothing to
// know yet. A node is reached by its addresses within the cluster, or else by those outside;
// one behind address translation by what people say, unless that hides this node as well.
func peerOf(node *corev1.Node, site []netip.AddrPort) (p podnet.Peer, ok bool) {
	if node == nil {
		return p, false
	}
	for _, cidr := range node.Spec.PodCIDRs {
		if c, err := netip.ParsePrefix(cidr); err == nil {
			p.PodCIDRs = append(p.PodCIDRs, c)
		}
	}
	if list := translated(node); len(list) > 0 && !sameSite(list, site) {
		p.Translated = true
		for _, at := range list {
			p.Addrs, p.Ports = append(p.Addrs, at.Addr()), append(p.Ports, at.Port())
		}
		return p, len(p.PodCIDRs) > 0
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			if ip, ok := reachable(a.Address); ok && a.Type == kind {
				p.Addrs = append(p.Addrs, ip)
			}
		}
		if len(p.Addrs) > 0 {
			break
		}
	}
	return p, len(p.PodCIDRs) > 0 && len(p.Addrs) > 0
}

// sameSite reports whether two nodes are behind one address.
func sameSite(a, b []netip.AddrPort) bool {
	return slices.ContainsFunc(a, func(one netip.AddrPort) bool {
		return slices.ContainsFunc(b, func(other netip.AddrPort) bool { return one.Addr() == other.Addr() })
	})
}

// translated are the addresses of a node that is behind address translation; none, if
// nobody says that it is. Port 0 is the one that all nodes listen to.
func translated(node *corev1.Node) (list []netip.AddrPort) {
	if node == nil {
		return nil
	}
	for text := range strings.SplitSeq(node.Annotations[AnnotationVXLANAddress], ",") {
		text = strings.TrimSpace(text)
		if ip, ok := reachable(text); ok {
			list = append(list, netip.AddrPortFrom(ip, 0))
			continue
		}
		at, err := netip.ParseAddrPort(text)
		if ip, ok := reachable(at.Addr().String()); err == nil && ok && at.Port() != 0 {
			list = append(list, netip.AddrPortFrom(ip, at.Port()))
		}
	}
	return list
}

// reachable reads an address that another machine can send to.
func reachable(text string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(text)
	return ip.Unmap(), err == nil && ip.IsGlobalUnicast() && ip.Zone() == ""
}
