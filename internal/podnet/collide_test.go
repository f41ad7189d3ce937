package podnet

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
)

func TestAddressesThatTheMachineUsesAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		addr, route string // of a link of the machine, and by way of it
		want        string // empty: it does no harm
	}{
		"address among the pods'": {addr: "10.244.7.9/24",
			want: "this machine has the address 10.244.7.9 (lan), which is one of those for pods, 10.244.0.0/16: choose others with --cluster-cidr"},
		"address among the services'": {addr: "10.97.0.5/24",
			want: "this machine has the address 10.97.0.5 (lan), which is one of those for services, 10.96.0.0/12: choose others with --service-cluster-ip-range"},
		"IPv6 address among the services'": {addr: "fd00:96::5/64",
			want: "this machine has the address fd00:96::5 (lan), which is one of those for services, fd00:96::/112: choose others with --service-cluster-ip-range"},
		"route to some of the node's pods": {addr: "192.0.2.2/24", route: "10.244.1.128/25",
			want: "this machine has a route to 10.244.1.128/25 (lan), into the addresses for pods of this node, 10.244.1.0/24: choose others with --cluster-cidr"},
		"route to all services": {addr: "192.0.2.2/24", route: "10.96.0.0/12",
			want: "this machine has a route to 10.96.0.0/12 (lan), into the addresses for services, 10.96.0.0/12: choose others with --service-cluster-ip-range"},
		"route to pods of another node": {addr: "192.0.2.2/24", route: "10.244.9.0/24"},
		"a wide network":                {addr: "10.1.2.3/8"},
		"a wide route":                  {addr: "192.0.2.2/24", route: "10.0.0.0/8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := nettest.New(t, "busy")
			h.Bridge("lan")
			h.Addr("lan", c.addr)
			if c.route != "" {
				h.Route(c.route, "192.0.2.1")
			}
			before := routesOf(t, h)
			dir := t.TempDir()
			o := Options{
				PodCIDRs:     mustPrefixes("10.244.1.0/24", "fd00:244:0:1::/64"),
				ClusterCIDRs: mustPrefixes("10.244.0.0/16", "fd00:244::/48"),
				ServiceCIDRs: mustPrefixes("10.96.0.0/12", "fd00:96::/112"),
				CNIConfDir:   filepath.Join(dir, "cni"), DataDir: filepath.Join(dir, "data"), CNICacheDir: filepath.Join(dir, "cache"),
			}
			got := ""
			h.Must(func() error {
				n, err := New(o)
				if err != nil {
					return err
				}
				defer n.Close()
				if err := n.Ensure(t.Context()); err != nil {
					got = err.Error()
				}
				return nil
			})
			if got != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			if after := routesOf(t, h); c.want != "" && after != before {
				t.Errorf("routes: got %s, want them as they were: %s", after, before)
			}
			if _, err := h.Netlink().LinkByName(DefaultBridge); (err == nil) != (c.want == "") {
				t.Errorf("bridge: got %v", err)
			}
		})
	}
}

// routesOf are the IPv4 routes of a machine.
func routesOf(t *testing.T, h *nettest.Host) string {
	list, err := h.Netlink().RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, r := range list {
		texts = append(texts, fmt.Sprint(r.Dst, r.Gw, r.LinkIndex))
	}
	return strings.Join(texts, ", ")
}

func TestPodsThatRunAreKeptWhenTheMachineTakesTheirAddresses(t *testing.T) {
	t.Parallel()
	h := nettest.New(t, "a")
	n := newNode(t, h, 1)
	h.Bridge("vpn")
	h.Addr("vpn", "10.244.7.9/24")
	n.ensure()
	n.Must(func() error { // another process
		again, err := New(n.o)
		if err != nil {
			return err
		}
		defer again.Close()
		return again.Ensure(t.Context())
	})
}
