package proxy

import (
	"testing"

	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// TestWhatIsToldToBeInForceIs: as soon as the proxy tells that it has applied a slice, no
// connection goes where that does not lead, nor while the kernel refuses it.
func TestWhatIsToldToBeInForceIs(t *testing.T) {
	s := newSite(t)
	s.serve()
	c := newCluster(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1"))
	var applied cache.Progress
	p := s.run(Options{Transport: c, Applied: &applied})
	inForce := func() {
		t.Helper()
		of := c.Cache(discovery.EndpointSlices.Def, "").ByIndex(discovery.IndexService, "default/web")
		if len(of) != 1 {
			t.Fatalf("got %d slices, want one", len(of))
		}
		if err := applied.Wait(t.Context(), of[0].Rev); err != nil {
			t.Fatal(err)
		}
	}
	inForce()
	s.reach(s.client, "10.96.0.10:80", "a", "")
	for range 20 {
		c.Put(backends("web", "10.244.1.3@n1"))
		inForce()
		s.reach(s.client, "10.96.0.10:80", "b", "")
		c.Put(backends("web", "10.244.1.2@n1"))
		inForce()
		s.reach(s.client, "10.96.0.10:80", "a", "")
	}
	var b nft.Batch
	b.FlushSet(tableOf(nft.IPv4), ServiceIPs.String())
	if err := p.kernel.Conn().Commit(t.Context(), &b); err != nil { // what is added next is refused once
		t.Fatal(err)
	}
	c.Put(backends("web", "10.244.1.2@n1", "10.244.1.3@n1"))
	inForce()
	if n := sample(t, p.metrics.failures); n != 1 {
		t.Errorf("got %v failures, want 1", n)
	}
	c.Put(backends("web", "10.244.1.3@n1"))
	inForce()
	s.reach(s.client, "10.96.0.10:80", "b", "")
}
