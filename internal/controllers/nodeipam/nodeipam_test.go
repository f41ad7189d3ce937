package nodeipam

import (
	"net/netip"
	"testing"
)

func TestSharesAreGivenInOrderUntilNoneIsLeft(t *testing.T) {
	cidr := netip.MustParsePrefix("10.244.0.0/22")
	taken := map[netip.Prefix]bool{}
	for _, want := range []string{"10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24"} {
		got, ok := firstFree(cidr, func(p netip.Prefix) bool { return !taken[p] })
		if !ok || got.String() != want {
			t.Fatalf("got %s %v, want %s", got, ok, want)
		}
		taken[got] = true
	}
	if got, ok := firstFree(cidr, func(p netip.Prefix) bool { return !taken[p] }); ok {
		t.Errorf("got %s of a range that is used up", got)
	}
	delete(taken, netip.MustParsePrefix("10.244.1.0/24"))
	if got, _ := firstFree(cidr, func(p netip.Prefix) bool { return !taken[p] }); got.String() != "10.244.1.0/24" {
		t.Errorf("got %s, want the share that was freed", got)
	}
}

func TestASmallRangeIsOneShare(t *testing.T) {
	got, ok := firstFree(netip.MustParsePrefix("10.0.0.128/25"), func(netip.Prefix) bool { return true })
	if !ok || got.String() != "10.0.0.128/25" {
		t.Errorf("got %s %v, want the whole range", got, ok)
	}
	if _, ok := firstFree(netip.MustParsePrefix("fd00:10::/56"), func(netip.Prefix) bool { return true }); !ok {
		t.Error("got nothing of an IPv6 range")
	}
}
