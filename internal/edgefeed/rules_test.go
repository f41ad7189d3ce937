package edgefeed

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/api/discovery"
)

// inForce waits until the feeder says that the slice of a service is in force.
func (b *bed) inForce(service string) {
	b.Helper()
	of := b.api.Cache(discovery.EndpointSlices.Def, "").ByIndex(discovery.IndexService, "team/"+service)
	if len(of) != 1 {
		b.Fatalf("got %d slices, want one", len(of))
	}
	if err := b.feeder.Wait(b.Context(), of[0].Rev); err != nil {
		b.Fatal(err)
	}
	if got := b.feeder.Rev(); got < of[0].Rev {
		b.Errorf("revision %d is in force, want %d", got, of[0].Rev)
	}
}

// TestWhatIsToldToBeInForceIs: as soon as the feeder tells that the edge has a slice in force, no
// request goes where that does not lead.
func TestWhatIsToldToBeInForceIs(t *testing.T) {
	b := newBed(t)
	first, second := b.serve("1"), b.serve("2")
	b.endpoint("web", first)
	b.api.Put(b.marker(), b.ingress("a", "web"))
	b.start("v1")
	b.answers("a.com", "1")
	for range 10 {
		b.endpoint("web", second)
		b.inForce("web")
		if got := b.get("a.com"); got != "2" {
			t.Fatalf("got %s, want 2", got)
		}
		b.endpoint("web", first)
		b.inForce("web")
		if got := b.get("a.com"); got != "1" {
			t.Fatalf("got %s, want 1", got)
		}
		b.endpoint("idle", first) // of which no Ingress is
		b.inForce("idle")
	}
	// What goes on being served is not told until it is told anew.
	b.stop()
	b.endpoint("web", second)
	b.start("v1")
	b.inForce("web")
	if got := b.get("a.com"); got != "2" {
		t.Errorf("after a restart: got %s, want 2", got)
	}
	b.api.Remove(b.marker())
	if err := b.feeder.Wait(t.Context(), math.MaxInt64); err != nil {
		t.Errorf("without an edge: got %v, want nothing to wait for", err)
	}
}

func TestNobodyWaitsForAnEdgeThatIsNotNeeded(t *testing.T) {
	b := newBed(t)
	b.start("v1")
	if err := b.feeder.Wait(t.Context(), math.MaxInt64); err != nil {
		t.Error(err)
	}
	if got := b.feeder.Rev(); got != math.MaxInt64 {
		t.Errorf("revision %d is in force, want any", got)
	}
}

func TestAcknowledgedOrdersAreInForce(t *testing.T) {
	r := &inForce{}
	reach := func(rev int64) bool {
		ctx, cancel := context.WithDeadlineCause(t.Context(), time.Now(), errors.New("not yet"))
		defer cancel()
		return r.Wait(ctx, rev) == nil
	}
	r.same(3)
	if !reach(3) {
		t.Error("nothing to be told up to 3: it is not in force")
	}
	r.sent(1, 5)
	r.sent(2, 6)
	r.same(7)
	if reach(4) {
		t.Error("an order that is not acknowledged is in force")
	}
	r.heard(1)
	if !reach(5) || reach(6) {
		t.Error("the first of two: want 5 to be in force and 6 not to be")
	}
	r.heard(2)
	if !reach(7) {
		t.Error("both: want all to be in force that they need not be told beside them")
	}
}
