package podnet

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
)

func TestPodsAreHeldToTheirLimits(t *testing.T) {
	t.Parallel()
	bin := plugins(t)
	n, _, _ := twoNodes(t)
	const size = 3 << 20
	for _, tc := range []struct {
		name   string
		limits Limits
		slow   bool
	}{
		{"free", Limits{}, false},
		{"receives", Limits{Receive: 16e6}, true},
		{"sends", Limits{Send: 16e6}, true},
	} {
		pod := nettest.New(t, tc.name)
		ips := n.attach(bin, pod)
		n.Must(func() error { return Limit(n.o, pod.Name, tc.limits) })
		for _, ip := range ips {
			addr := pod.Serve(tc.name, "tcp", netip.AddrPortFrom(ip, 0).String())
			took := func() time.Duration {
				start := time.Now()
				if err := stream(n.Host, addr, size); err != nil { // there and back
					t.Fatalf("%s: %v", tc.name, err)
				}
				return time.Since(start)
			}
			least := time.Duration(float64(size*8) / 16e6 * float64(time.Second) * 0.8)
			if tc.slow {
				if d := took(); d < least {
					t.Errorf("%s: %d bytes took %s, want at least %s", tc.name, size, d, least)
				}
				continue
			}
			within(t, tc.name, func() error { // unless the machine has much else to do
				if d := took(); d > least {
					return fmt.Errorf("%d bytes took %s, want that nothing holds them back", size, d)
				}
				return nil
			})
		}
	}
	n.Must(func() error {
		if err := Limit(n.o, "unknown", Limits{Send: 1}); err == nil || !strings.Contains(err.Error(), "sandbox unknown") {
			t.Errorf("limit of an unknown sandbox: got %v, want an error that names it", err)
		}
		return nil
	})
}
