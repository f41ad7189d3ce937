package podnet

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
)

// TestReusedAddressAnswersAtOnce makes pods come and go until one has the address
// of the first: the node and a pod that have talked to that reach the new one by
// their first packet.
func TestReusedAddressAnswersAtOnce(t *testing.T) {
	t.Parallel()
	bin := plugins(t)
	for name, cidr := range map[string]string{"IPv4": "10.244.1.0/29", "IPv6": "fd00:244:0:1::/125"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, out := nettest.New(t, "node"), nettest.New(t, "out")
			nettest.Link(h, "eth0", out, "eth0")
			n := newNodeWith(t, h, Options{PodCIDRs: mustPrefixes(cidr)})
			caller, first := nettest.New(t, "caller"), nettest.New(t, "first")
			n.attach(bin, caller)
			addr := n.attach(bin, first)[0]
			reach := func(pod *nettest.Host) {
				t.Helper()
				at := netip.AddrPortFrom(addr, 8080).String()
				pod.Serve(pod.Name, "udp", at)
				for _, from := range []*nettest.Host{n.Host, caller} {
					if err := ask(from, "udp "+at, pod.Name, ""); err != nil {
						t.Error(err)
					}
				}
			}
			reach(first)
			last := first
			for i := 0; i == 0 || n.attach(bin, last)[0] != addr; i++ {
				if _, err := n.cni(bin, "DEL", last); err != nil {
					t.Fatal(err)
				}
				last = nettest.New(t, fmt.Sprintf("pod%d", i))
			}
			n.Must(func() error { return ForgetNeighbours(n.o, []netip.Addr{addr}) })
			reach(last)

			known, err := caller.Netlink().NeighList(0, unix.AF_UNSPEC)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range known {
				if k.IP.Equal(addr.AsSlice()) {
					t.Errorf("a pod knows where another one is: %v", k)
				}
			}
		})
	}
}

func TestForgettingWhatIsNotKnownIsNoError(t *testing.T) {
	t.Parallel()
	n, _, _ := twoNodes(t)
	n.Must(func() error {
		return ForgetNeighbours(n.o, []netip.Addr{netip.MustParseAddr("10.244.1.9"), netip.MustParseAddr("fd00:244:0:1::9")})
	})
}
