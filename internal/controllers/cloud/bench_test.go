package cloud

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

// BenchmarkRoutesThatAreAllThere is what a look at the routes of many nodes costs, every 10 seconds.
func BenchmarkRoutesThatAreAllThere(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var nodes []*corev1.Node
			var routes []*cloudprovider.Route
			for i := range n {
				name := fmt.Sprintf("ip-10-0-%d-%d.example.internal", i/250, i%250)
				four, six := fmt.Sprintf("10.%d.%d.0/24", i/250, i%250), fmt.Sprintf("fd00:%x::/64", i)
				nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: []string{four, six}}})
				for _, cidr := range []string{four, six} {
					routes = append(routes, &cloudprovider.Route{Name: name + cidr, TargetNode: types.NodeName(name), DestinationCIDR: cidr})
				}
			}
			cluster := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/16")}
			b.ReportAllocs()
			for b.Loop() {
				if p := planRoutes(nodes, routes, cluster); len(p.drop)+len(p.make) > 0 {
					b.Fatalf("got %+v, want nothing to do", p)
				}
			}
		})
	}
}
