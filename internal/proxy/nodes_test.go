package proxy

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/trace"
)

// apart is two nodes behind a router, with the product's pod network between them, a pod
// on each, a proxy on both, and a client that belongs to no cluster:
//
//	client 192.168.3.100 --- router ---+--- n1 192.168.1.1 === VXLAN === n2 192.168.2.2
//	                                   a 10.244.1.2                      c 10.244.2.2
//
// and the same in IPv6. The sites are the proxies' of the two nodes.
func apart(t *testing.T, mode podnet.Mode) (sites [2]*site) {
	t.Parallel()
	router, client := nettest.New(t, "router"), nettest.New(t, "client")
	router.Router()
	join := func(h *nettest.Host, subnet, number int) {
		link := fmt.Sprintf("to%d", subnet)
		nettest.Link(router, link, h, "eth0")
		router.Addr(link, fmt.Sprintf("192.168.%d.254/24", subnet))
		router.Addr(link, fmt.Sprintf("fd00:%d::254/64", subnet))
		h.Addr("eth0", fmt.Sprintf("192.168.%d.%d/24", subnet, number))
		h.Addr("eth0", fmt.Sprintf("fd00:%d::%d/64", subnet, number))
		h.Route("0.0.0.0/0", fmt.Sprintf("192.168.%d.254", subnet))
		h.Route("::/0", fmt.Sprintf("fd00:%d::254", subnet))
	}
	join(client, 3, 100)
	nodes := [2]*nettest.Host{nettest.New(t, "n1"), nettest.New(t, "n2")}
	a, b, c := nettest.New(t, "a"), nettest.New(t, "b"), nettest.New(t, "c") // b is nowhere
	pods := mustPrefixes("10.244.0.0/16", "fd00:244::/48")
	for i, n := range nodes {
		join(n, i+1, i+1)
		dir, other := t.TempDir(), 2-i
		var network *podnet.Network
		n.Must(func() (err error) {
			network, err = podnet.New(podnet.Options{
				Mode: mode, PodCIDRs: mustPrefixes(fmt.Sprintf("10.244.%d.0/24", i+1), fmt.Sprintf("fd00:244:0:%d::/64", i+1)), ClusterCIDRs: pods,
				ServiceCIDRs: mustPrefixes("10.96.0.0/12", "fd00:96::/112"), CNIConfDir: dir, DataDir: dir, CNICacheDir: dir,
			})
			if err == nil {
				err = network.Ensure(t.Context())
			}
			if err == nil {
				err = network.Routes.Update(t.Context(), "other", podnet.Peer{
					PodCIDRs: mustPrefixes(fmt.Sprintf("10.244.%d.0/24", other), fmt.Sprintf("fd00:244:0:%d::/64", other)),
					Addrs:    []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.168.%d.%d", other, other)), netip.MustParseAddr(fmt.Sprintf("fd00:%d::%d", other, other))},
				})
			}
			return err
		})
		t.Cleanup(network.Close)
		sites[i] = &site{t: t, n1: n, n2: nodes[1-i], client: client, a: a, b: b, c: c, bridge: podnet.DefaultBridge}
		sites[i].model = NewModel(Config{NodeName: fmt.Sprintf("n%d", i+1), ClusterCIDRs: pods, ServiceCIDRs: mustPrefixes("10.96.0.0/12")})
		sites[i].open()
	}
	sites[0].pod(nodes[0], a, 1, 2)
	sites[1].pod(nodes[1], c, 2, 2)
	return sites
}

func TestServicesAcrossNodesThatAreNoNeighbours(t *testing.T) {
	s := apart(t, podnet.Auto)
	n1, n2 := s[0], s[1]
	n1.serve()
	put := func(svc *corev1.Service, list ...string) {
		t.Helper()
		for _, at := range s {
			at.put(svc)
			for _, e := range list {
				at.put(backends("web", e))
			}
		}
	}
	both := func(svc *corev1.Service) {
		svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	put(service("web", "10.96.0.10 fd00:96::a", nodePort, both), "10.244.2.2@n2", "fd00:244:0:2::2@n2")
	for _, f := range []struct{ vip, pod, own, seen, node1, node2, client string }{
		{"10.96.0.10:80", "10.244.2.2:8080", "10.244.1.2", "10.244.1.1", "192.168.1.1:30080", "192.168.2.2:30080", "192.168.3.100"},
		{"[fd00:96::a]:80", "[fd00:244:0:2::2]:8080", "fd00:244:0:1::2", "fd00:244:0:1::1", "[fd00:1::1]:30080", "[fd00:2::2]:30080", "fd00:3::100"},
	} {
		trace.Proves(t, "SVC-051")
		n1.reach(n1.a, f.pod, "c", f.own) // whoever it is, the other sees him
		n1.reach(n1.a, f.vip, "c", f.own)
		n1.reach(n1.n1, f.vip, "c", f.seen)
		n1.reach(n1.client, f.node1, "c", f.seen)
		n1.reach(n1.client, f.node2, "c", "")
		n1.reach(n1.a, f.node1, "c", "")
	}
	for _, at := range s {
		at.put(service("example", "10.96.0.1", func(svc *corev1.Service) {
			for i := range svc.Spec.Ports {
				svc.Spec.Ports[i].Port = 1234
			}
		}), backends("example", "10.244.2.2@n2"))
		trace.Proves(t, "SVC-176")
		at.reach(at.n1, "10.96.0.1:1234", "c", "")
	}
	local := service("web", "10.96.0.10 fd00:96::a", nodePort, both, func(svc *corev1.Service) {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	put(local)
	for _, f := range []struct{ node1, node2, client string }{
		{"192.168.1.1:30080", "192.168.2.2:30080", "192.168.3.100"},
		{"[fd00:1::1]:30080", "[fd00:2::2]:30080", "fd00:3::100"},
	} {
		trace.Proves(t, "SVC-151")
		n1.dropped(n1.client, f.node1)
		n2.reach(n2.client, f.node2, "c", f.client)
		n1.reach(n1.a, f.node1, "c", "")
	}
}
