package nodeipam

import (
	"net/netip"
	"testing"

	"github.com/kemudi/kemudi/internal/trace"
)

var defaults = Options{}.withDefaults()

func TestSharesAreGivenInOrderUntilNoneIsLeft(t *testing.T) {
	cidr := netip.MustParsePrefix("10.244.0.0/22")
	taken := map[netip.Prefix]bool{}
	for _, want := range []string{"10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24"} {
		got, ok := firstFree(cidr, defaults.bits(cidr), func(p netip.Prefix) bool { return !taken[p] })
		if !ok || got.String() != want {
			t.Fatalf("got %s %v, want %s", got, ok, want)
		}
		taken[got] = true
	}
	if got, ok := firstFree(cidr, defaults.bits(cidr), func(p netip.Prefix) bool { return !taken[p] }); ok {
		t.Errorf("got %s of a range that is used up", got)
	}
	delete(taken, netip.MustParsePrefix("10.244.1.0/24"))
	if got, _ := firstFree(cidr, defaults.bits(cidr), func(p netip.Prefix) bool { return !taken[p] }); got.String() != "10.244.1.0/24" {
		t.Errorf("got %s, want the share that was freed", got)
	}
}

func TestASmallRangeIsOneShare(t *testing.T) {
	small, six := netip.MustParsePrefix("10.0.0.128/25"), netip.MustParsePrefix("fd00:10::/56")
	got, ok := firstFree(small, defaults.bits(small), func(netip.Prefix) bool { return true })
	if !ok || got.String() != "10.0.0.128/25" {
		t.Errorf("got %s %v, want the whole range", got, ok)
	}
	if got, ok := firstFree(six, defaults.bits(six), func(netip.Prefix) bool { return true }); !ok || got.String() != "fd00:10::/64" {
		t.Errorf("got %s %v of an IPv6 range, want fd00:10::/64", got, ok)
	}
}

func TestTheSizeOfSharesCanBeChosen(t *testing.T) {
	trace.Proves(t, "DUAL-010")
	if defaults.Bits4 != 24 || defaults.Bits6 != 64 {
		t.Errorf("got /%d and /%d, want /24 and /64", defaults.Bits4, defaults.Bits6)
	}
	for _, bits := range []int{26, 80} {
		o, cidr := Options{Bits: bits}.withDefaults(), netip.MustParsePrefix("10.244.0.0/16")
		if bits == 80 {
			cidr = netip.MustParsePrefix("fc00::/24")
		}
		if got, ok := firstFree(cidr, o.bits(cidr), func(netip.Prefix) bool { return true }); !ok || got.Bits() != bits {
			t.Errorf("share of %s, by the size for either family: got %s %v, want /%d", cidr, got, ok, bits)
		}
	}
	o := Options{Bits4: 26, Bits6: 80}.withDefaults()
	for cidr, want := range map[string]string{"10.244.0.0/16": "10.244.0.64/26", "fc00::/24": "fc00:0:0:0:1::/80"} {
		cidr := netip.MustParsePrefix(cidr)
		first := netip.PrefixFrom(cidr.Addr(), o.bits(cidr))
		got, ok := firstFree(cidr, o.bits(cidr), func(p netip.Prefix) bool { return p != first })
		if !ok || got != netip.MustParsePrefix(want).Masked() {
			t.Errorf("second share of %s: got %s %v, want %s", cidr, got, ok, want)
		}
	}
}
