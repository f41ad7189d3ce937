//go:build !race

package bgp

import (
	"fmt"
	"testing"
	"time"

	"github.com/kemudi/kemudi/test/router"
	"github.com/kemudi/kemudi/test/wait"
)

// The router of these tests marks routes as stale while it lists them, which the race detector stops.

// TestRoutersKeepRoutesForAProcessThatIsStartedAnew ends one that leads on, begins another which leads elsewhere, and ends that for good.
func TestRoutersKeepRoutesForAProcessThatIsStartedAnew(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	r := w.start(router.Neighbour{Addr: "10.9.0.1", AS: nodesAS, Keeps: true})
	p := peerAt("10.9.0.2")
	p.Restart = 2 * time.Minute
	own := addrs("10.9.0.1", "fd09::1")
	s := w.speak(p)
	s.Set(Routes{Addrs: addrs("192.0.2.1", "192.0.2.2", "2001:db8::1"), Own: own})
	all := []string{"192.0.2.1/32 via 10.9.0.1", "192.0.2.2/32 via 10.9.0.1", "2001:db8::1/128 via fd09::1"}
	w.wantRoutes(r, all...)
	w.wantReport(s, Up, "")
	s.end()
	wait.Until(t, func() error { // that it has noticed is not enough: it must have thought about it
		stale, err := r.Stale()
		if err == nil && stale != len(all) {
			err = fmt.Errorf("%d routes are kept for who comes back, want %d", stale, len(all))
		}
		return err
	})
	w.wantRoutes(r, all...)
	// The next one has no rules yet for one of them, and never will for another.
	s = w.speak(p)
	s.Set(Routes{Addrs: addrs("192.0.2.1"), Own: own, More: true})
	for got := range s.reports { // a router may not be ready at once for whom it has just lost
		if got.Kind == Up {
			break
		}
	}
	w.wantRoutes(r, all...)
	s.Set(Routes{Addrs: addrs("192.0.2.1", "2001:db8::1"), Own: own})
	w.wantRoutes(r, all[0], all[2])
	s.endFor(ErrNothing)
	w.wantRoutes(r)
}
