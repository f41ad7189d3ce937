package cloud

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

func TestRoutesThatAreToGoAndToCome(t *testing.T) {
	at := func(ip string) []corev1.NodeAddress {
		return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}, {Type: corev1.NodeHostName, Address: "h"}}
	}
	node := func(name, ip string, cidrs ...string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: cidrs}, Status: corev1.NodeStatus{Addresses: at(ip)}}
	}
	route := func(name, node, cidr string) *cloudprovider.Route {
		return &cloudprovider.Route{Name: name, TargetNode: types.NodeName(node), DestinationCIDR: cidr}
	}
	addressed := func(r *cloudprovider.Route, addresses []corev1.NodeAddress) *cloudprovider.Route {
		r.EnableNodeAddresses, r.TargetNodeAddresses = true, addresses
		return r
	}
	hole := route("hole", "a", "10.244.0.0/24")
	hole.Blackhole = true
	for name, c := range map[string]struct {
		nodes  []*corev1.Node
		routes []*cloudprovider.Route
		want   string
	}{
		"a node without a share":        {nodes: []*corev1.Node{node("a", "1")}, want: ""},
		"a new node of both families":   {nodes: []*corev1.Node{node("a", "1", "10.244.0.0/24", "fd00:244::/64")}, want: "+a 10.244.0.0/24 +a fd00:244::/64"},
		"a route that is there":         {nodes: []*corev1.Node{node("a", "1", "10.244.0.0/24")}, routes: []*cloudprovider.Route{route("r", "a", "10.244.0.0/24")}, want: ""},
		"a range that has moved":        {nodes: []*corev1.Node{node("b", "1", "10.244.0.0/24")}, routes: []*cloudprovider.Route{route("r", "a", "10.244.0.0/24")}, want: "-r +b 10.244.0.0/24"},
		"a blackhole":                   {nodes: []*corev1.Node{node("a", "1", "10.244.0.0/24")}, routes: []*cloudprovider.Route{hole}, want: "-hole +a 10.244.0.0/24"},
		"others' routes":                {routes: []*cloudprovider.Route{route("r", "x", "10.0.0.0/24"), route("s", "", "0.0.0.0/0"), route("t", "x", "nowhere"), route("u", "x", "fd00:1::/64")}, want: ""},
		"a route to a part of a share":  {nodes: []*corev1.Node{node("a", "1", "10.244.0.0/24")}, routes: []*cloudprovider.Route{route("r", "a", "10.244.0.0/25")}, want: "-r +a 10.244.0.0/24"},
		"a wider route that begins so":  {routes: []*cloudprovider.Route{route("r", "a", "10.244.0.0/15")}, want: "-r"},
		"addresses in another order":    {nodes: []*corev1.Node{node("a", "1", "10.244.0.0/24")}, routes: []*cloudprovider.Route{addressed(route("r", "a", "10.244.0.0/24"), []corev1.NodeAddress{at("1")[1], at("1")[0]})}, want: ""},
		"other addresses":               {nodes: []*corev1.Node{node("a", "2", "10.244.0.0/24")}, routes: []*cloudprovider.Route{addressed(route("r", "a", "10.244.0.0/24"), at("1"))}, want: "-r +a 10.244.0.0/24"},
		"the same route of two entries": {nodes: []*corev1.Node{node("a", "1", "10.244.0.0/24")}, routes: []*cloudprovider.Route{route("r", "a", "10.244.0.0/24"), route("s", "a", "10.244.0.0/24")}, want: ""},
	} {
		p := planRoutes(c.nodes, c.routes, []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/56")})
		var got []string
		for _, r := range p.drop {
			got = append(got, "-"+r.Name)
		}
		for _, m := range p.make {
			got = append(got, fmt.Sprintf("+%s %s", m.node.Name, m.route.DestinationCIDR))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
