package cluster

import (
	"errors"
	"net/netip"
	"testing"
)

func TestAddressesFollowTheMachine(t *testing.T) {
	t.Parallel()
	ip := func(s string) netip.Addr {
		if s == "" {
			return netip.Addr{}
		}
		return netip.MustParseAddr(s)
	}
	at := func(first, second, advertise string, routed bool) addresses {
		return addresses{ip(first), ip(second), ip(advertise), routed}
	}
	home := at("192.0.2.7", "", "192.0.2.7", true)
	for _, tc := range []struct {
		name           string
		now, asked     addresses
		has            []string  // of the machine
		found          addresses // what is found for what is not asked for
		nothing        bool      // there is no address
		want           addresses
		wantsNoAddress bool
	}{
		{name: "nothing has changed", now: home, has: []string{"192.0.2.7"}, found: at("198.51.100.1", "", "", true), want: home},
		{name: "another network", now: home, has: []string{"198.51.100.1"}, found: at("198.51.100.1", "", "", true), want: at("198.51.100.1", "", "198.51.100.1", true)},
		{name: "no network, but a bridge", now: home, has: []string{"172.17.0.1"}, found: at("172.17.0.1", "", "", false), want: home},
		{name: "no network", now: home, nothing: true, want: home, wantsNoAddress: true},
		{name: "another address on a wire without a router", now: at("10.0.0.1", "", "10.0.0.1", false), has: []string{"10.0.0.2"}, found: at("10.0.0.2", "", "", false), want: at("10.0.0.2", "", "10.0.0.2", false)},
		{name: "a router comes", now: at("10.0.0.1", "", "10.0.0.1", false), has: []string{"192.0.2.7"}, found: at("192.0.2.7", "", "", true), want: home},
		{name: "a second default route", now: home, has: []string{"192.0.2.7", "10.8.0.1"}, found: at("10.8.0.1", "", "", true), want: home},
		{name: "the address was given", now: home, asked: at("192.0.2.7", "", "", false), has: []string{"198.51.100.1"}, found: at("198.51.100.1", "", "", true), want: home},
		{name: "the advertised one was given", now: at("192.0.2.7", "", "203.0.113.9", true), asked: at("", "", "203.0.113.9", false), has: []string{"198.51.100.1"}, found: at("198.51.100.1", "", "", true), want: at("198.51.100.1", "", "203.0.113.9", true)},
		{name: "the second changes", now: at("192.0.2.7", "2001:db8::7", "192.0.2.7", true), has: []string{"192.0.2.7", "2001:db8::8"}, found: at("", "2001:db8::8", "", true), want: at("192.0.2.7", "2001:db8::8", "192.0.2.7", true)},
		{name: "the second goes", now: at("192.0.2.7", "2001:db8::7", "192.0.2.7", true), has: []string{"192.0.2.7"}, found: at("", "", "", true), want: at("192.0.2.7", "2001:db8::7", "192.0.2.7", true)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			has := func(a netip.Addr) bool {
				for _, s := range tc.has {
					if ip(s) == a {
						return true
					}
				}
				return false
			}
			find := func(want addresses) (addresses, error) {
				if tc.nothing {
					return addresses{}, errors.New("none")
				}
				if !want.first.IsValid() {
					want.first = tc.found.first
				}
				if !want.second.IsValid() {
					want.second = tc.found.second
				}
				if !want.advertise.IsValid() {
					want.advertise = want.first
				}
				want.routed = want.first == tc.found.first && tc.found.routed
				return want, nil
			}
			got, err := tc.now.next(tc.asked, has, find)
			if got != tc.want || (err != nil) != tc.wantsNoAddress {
				t.Errorf("got %+v, %v, want %+v", got, err, tc.want)
			}
		})
	}
}
