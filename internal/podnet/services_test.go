package podnet

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/kemudi/kemudi/test/wait"
)

func TestServiceAddressesComeAndGo(t *testing.T) {
	t.Parallel()
	n, _, _ := twoNodes(t)
	n.keep()
	routed := func() (list []string) {
		link, err := n.Netlink().LinkByName(DefaultBridge)
		if err != nil {
			t.Fatal(err)
		}
		routes, err := ourRoutes(n.Netlink())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			if p, ok := prefixOf(r.Dst); ok && r.LinkIndex == link.Attrs().Index {
				list = append(list, p.String())
			}
		}
		slices.Sort(list)
		return list
	}
	for _, want := range [][]string{
		{"10.96.0.0/12", "fd00:96::/112"},
		{"10.112.0.0/16", "10.96.0.0/12", "fd00:96::/112"},
		{"10.112.0.0/16"},
	} {
		n.net.SetServiceCIDRs(mustPrefixes(want...))
		wait.Until(t, func() error {
			if got := routed(); !slices.Equal(got, want) {
				return fmt.Errorf("got %v, want %v", got, want)
			}
			return nil
		})
	}
	routes, err := n.Netlink().RouteGet(netip.MustParseAddr("10.112.0.1").AsSlice())
	if err != nil || len(routes) != 1 || routes[0].Src.String() != "10.244.1.1" {
		t.Errorf("got %v, %v, want a way with the node's own address of the pod network", routes, err)
	}
}
