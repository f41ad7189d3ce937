package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// routeProtocol is the mark of the pod network's routes in the kernel.
const routeProtocol = 75

func at(kind corev1.NodeAddressType, a string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: kind, Address: a}
}

func TestPeersAreNodesWithPodsAndAddresses(t *testing.T) {
	node := func(cidrs []string, addresses ...corev1.NodeAddress) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: cidrs}, Status: corev1.NodeStatus{Addresses: addresses}}
	}
	behind := func(address string, n *corev1.Node) *corev1.Node {
		n.Annotations = map[string]string{AnnotationVXLANAddress: address}
		return n
	}
	pods, own := []string{"10.244.1.0/24", "fd00:244::/64"}, at(corev1.NodeInternalIP, "192.168.1.1")
	for _, tc := range []struct {
		name string
		node *corev1.Node
		want string
	}{
		{"no node", nil, "no peer"},
		{"no addresses yet", node(pods), "no peer"},
		{"no pods yet", node(nil, own), "no peer"},
		{"a name is no address", node(pods, at(corev1.NodeHostName, "n1"), at(corev1.NodeInternalIP, "n1")), "no peer"},
		{"loopback is not its own", node(pods, at(corev1.NodeInternalIP, "127.0.0.1")), "no peer"},
		{
			"in the order of the node", node(pods, at(corev1.NodeExternalIP, "203.0.113.1"), at(corev1.NodeInternalIP, "fd00::1"), own),
			"[10.244.1.0/24 fd00:244::/64] at [fd00::1 192.168.1.1]",
		},
		{"addresses outside when there are no others", node(pods[:1], at(corev1.NodeExternalIP, "203.0.113.1")), "[10.244.1.0/24] at [203.0.113.1]"},
		{"behind address translation", behind("203.0.113.7, 2001:db8::7", node(pods[:1], own)), "[10.244.1.0/24] at [203.0.113.7 2001:db8::7] translated to [0 0]"},
		{
			"behind an address with others", behind("203.0.113.7:4790,[2001:db8::7]:4791", node(pods[:1], own)),
			"[10.244.1.0/24] at [203.0.113.7 2001:db8::7] translated to [4790 4791]",
		},
		{"behind the same address as this node", behind("198.51.100.1:4790", node(pods[:1], own)), "[10.244.1.0/24] at [192.168.1.1]"},
		{"a port that is none", behind("203.0.113.7:0", node(pods[:1], own)), "[10.244.1.0/24] at [192.168.1.1]"},
		{"behind nobody knows what", behind("the.router", node(pods[:1], own)), "[10.244.1.0/24] at [192.168.1.1]"},
		{"behind address translation, no pods yet", behind("203.0.113.7", node(nil, own)), "no peer"},
	} {
		got := "no peer"
		if p, ok := peerOf(tc.node, []netip.AddrPort{netip.MustParseAddrPort("198.51.100.1:4789")}); ok {
			got = fmt.Sprintf("%v at %v", p.PodCIDRs, p.Addrs)
			if p.Translated {
				got += fmt.Sprintf(" translated to %v", p.Ports)
			}
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestWaysToPodsFollowTheNodes(t *testing.T) {
	t.Parallel()
	host, other := nettest.New(t, "n1"), nettest.New(t, "other")
	nettest.Link(host, "eth0", other, "eth0")
	host.Addr("eth0", "192.168.1.1/24")
	host.Route("0.0.0.0/0", "192.168.1.254")
	// An earlier process has left the way to a node that has gone since.
	left := &netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 244, 9, 0), Mask: net.CIDRMask(24, 32)}, Gw: net.IPv4(192, 168, 1, 9), Protocol: routeProtocol}
	if err := host.Netlink().RouteAdd(left); err != nil {
		t.Fatal(err)
	}
	node := func(number int, address string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", number)}}
		n.Spec.PodCIDRs = []string{fmt.Sprintf("10.244.%d.0/24", number)}
		n.Status.Addresses = []corev1.NodeAddress{at(corev1.NodeInternalIP, address)}
		return n
	}
	api := clienttest.NewFilled(node(1, "192.168.1.1"), node(2, "192.168.1.2"), node(3, "192.168.2.3"))
	w := &Worker{o: Options{NodeName: "n1", Logger: slog.New(slog.DiscardHandler)}, c: Cluster{Transport: api}}
	g := task.NewGroup(t.Context())
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	g.Go("follow nodes", func(ctx context.Context) error {
		return host.Do(func() error {
			dir := t.TempDir()
			pods, err := podnet.New(podnet.Options{
				PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
				CNIConfDir: dir, DataDir: dir,
			})
			if err != nil {
				return err
			}
			defer pods.Close()
			return w.followNodes(ctx, pods.Routes)
		})
	})
	leads := func(when string, want ...string) {
		t.Helper()
		wait.Until(t, func() error {
			got, err := waysOf(host)
			if err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("%s: got %q, %v, want %q", when, got, err, want)
			}
			return nil
		})
	}
	leads("at first", "10.244.2.0/24 via 192.168.1.2", "10.244.3.0/24 via 10.244.3.0 at 192.168.2.3")
	moved := node(3, "192.168.1.3")
	api.Put(moved)
	leads("a node became a neighbour", "10.244.2.0/24 via 192.168.1.2", "10.244.3.0/24 via 192.168.1.3")
	behind := moved.DeepCopy()
	behind.Annotations = map[string]string{AnnotationVXLANAddress: "203.0.113.3"}
	api.Put(behind)
	leads("it went behind address translation", "10.244.2.0/24 via 192.168.1.2", "10.244.3.0/24 via 10.244.3.0 at 203.0.113.3")
	// This node is behind the same address: then they are of one site.
	self := node(1, "192.168.1.1")
	self.Annotations = map[string]string{AnnotationVXLANAddress: "203.0.113.3:4790"}
	api.Put(self)
	leads("this node is there as well", "10.244.2.0/24 via 192.168.1.2", "10.244.3.0/24 via 192.168.1.3")
	api.Put(node(1, "192.168.1.1"))
	api.Put(node(4, "192.168.1.4"))
	api.Remove(node(2, ""))
	leads("one came and one went", "10.244.3.0/24 via 10.244.3.0 at 203.0.113.3", "10.244.4.0/24 via 192.168.1.4")
	api.Put(node(3, ""))
	leads("one has no address", "10.244.4.0/24 via 192.168.1.4")
}

// waysOf lists the ways to pods of other nodes, as people would write them.
func waysOf(h *nettest.Host) (list []string, err error) {
	nl := h.Netlink()
	routes, err := nl.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		if r.Gw == nil {
			continue // refuses what no node has
		}
		way := fmt.Sprintf("%s via %s", r.Dst, r.Gw)
		stations, err := nl.NeighList(r.LinkIndex, unix.AF_BRIDGE) // none, unless the link is of VXLAN
		if err != nil {
			return nil, err
		}
		hops, err := nl.NeighList(r.LinkIndex, netlink.FAMILY_V4)
		if err != nil {
			return nil, err
		}
		for _, hop := range hops {
			for _, s := range stations {
				if hop.IP.Equal(r.Gw) && bytes.Equal(hop.HardwareAddr, s.HardwareAddr) {
					way += fmt.Sprintf(" at %s", s.IP)
				}
			}
		}
		list = append(list, way)
	}
	slices.Sort(list)
	return list, nil
}
