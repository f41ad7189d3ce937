package worker

import (
	"context"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/podnet"
)

// AnnotationVXLANAddress is set by people on a Node that is behind address translation:
// the address, or one of each family with a comma between, to which other nodes send VXLAN.
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
	return client.Cached(w.c.Transport, core.Nodes, "").Each(ctx, cache.FollowOptions{}, func(deltas []cache.Delta) error {
		for _, d := range deltas {
			name := d.Last().Key
			if name == w.o.NodeName {
				continue
			}
			was, had := peerOf(d.Prev)
			switch is, has := peerOf(d.Now); {
			case has && !(had && was.Equal(is)):
				complain(routes.Update(ctx, name, is))
			case had && !has:
				complain(routes.Delete(ctx, name))
			}
		}
		if !known {
			known = true
			complain(routes.Prune(ctx))
		}
		return nil
	})
}

// peerOf is what the pod network must know of a node; ok is false if there is nothing to
// know yet. A node is reached by its addresses within the cluster, or else by those outside.
func peerOf(it *cache.Item) (p podnet.Peer, ok bool) {
	if it == nil {
		return p, false
	}
	node := it.Object.(*corev1.Node)
	for _, cidr := range node.Spec.PodCIDRs {
		if c, err := netip.ParsePrefix(cidr); err == nil {
			p.PodCIDRs = append(p.PodCIDRs, c)
		}
	}
	if p.Addrs = translated(node); len(p.Addrs) > 0 {
		p.Translated = true
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

// translated are the addresses of a node that is behind address translation; none, if
// nobody says that it is.
func translated(node *corev1.Node) (list []netip.Addr) {
	for text := range strings.SplitSeq(node.Annotations[AnnotationVXLANAddress], ",") {
		if ip, ok := reachable(strings.TrimSpace(text)); ok {
			list = append(list, ip)
		}
	}
	return list
}

// reachable reads an address that another machine can send to.
func reachable(text string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(text)
	return ip.Unmap(), err == nil && ip.IsGlobalUnicast() && ip.Zone() == ""
}
