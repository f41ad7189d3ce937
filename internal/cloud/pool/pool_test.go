package pool

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAddressesAreGivenInOrderUntilNoneIsLeft(t *testing.T) {
	p, err := Parse([]string{"192.0.2.0/31", "192.0.2.10-192.0.2.11", "2001:db8::7"})
	if err != nil {
		t.Fatal(err)
	}
	taken := map[netip.Addr]bool{}
	var got []string
	for _, six := range []bool{false, false, false, false, false, true, true} {
		a, ok := p.Free(six, func(a netip.Addr) bool { return taken[a] })
		if ok != a.IsValid() || ok && !p.Contains(a) {
			t.Errorf("got %s, %v", a, ok)
		}
		taken[a] = true
		got = append(got, a.String())
	}
	want := "192.0.2.0 192.0.2.1 192.0.2.10 192.0.2.11 invalid IP 2001:db8::7 invalid IP"
	if strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if p.Contains(netip.MustParseAddr("192.0.2.9")) {
		t.Error("192.0.2.9 is in none of the ranges")
	}
}

func TestRangesThatAreNoneAreRefused(t *testing.T) {
	for _, text := range []string{"", "192.0.2.0/33", "192.0.2.7-192.0.2.1", "192.0.2.7-2001:db8::7", "a-b", "192.0.2.1-"} {
		if p, err := Parse([]string{text}); err == nil {
			t.Errorf("%q: got %v, want an error", text, p)
		}
	}
}
