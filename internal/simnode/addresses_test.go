package simnode

import (
	"errors"
	"net/netip"
	"testing"
)

const perNode = 1<<shareBits - 2

func none(string) bool { return false }

func TestPodsOfAllNodesHaveAddressesOfTheirOwn(t *testing.T) {
	services := netip.MustParsePrefix("10.96.0.0/16")
	seen := map[string]bool{}
	for _, node := range []int{0, 1, 2, 15, 16, 255, 256, MaxNodes - 1} {
		a := Addresses{Node: node, Dual: true}
		for range perNode {
			ips, err := a.next(none)
			if err != nil || len(ips) != 2 {
				t.Fatalf("node %d: got %v, %v, want an address of each family", node, ips, err)
			}
			for _, ip := range ips {
				if seen[ip.IP] || services.Contains(netip.MustParseAddr(ip.IP)) {
					t.Fatalf("node %d: %s is another's", node, ip.IP)
				}
				seen[ip.IP] = true
			}
		}
	}
	for node, want := range map[int]string{0: "10.1.0.1 fd00:1::1", 1: "10.1.16.1 fd00:1:0:1::1", MaxNodes - 1: "10.95.240.1 fd00:1:0:5ef::1"} {
		a := Addresses{Node: node, Dual: true}
		if ips, err := a.next(none); err != nil || ips[0].IP+" "+ips[1].IP != want {
			t.Errorf("node %d: got %v, %v, want %s", node, ips, err, want)
		}
	}
}

func TestAddressesOfPodsThatAreGoneAreGivenAgain(t *testing.T) {
	a := Addresses{given: perNode}
	if ips, err := a.next(func(ip string) bool { return ip != "10.1.0.7" }); err != nil || ips[0].IP != "10.1.0.7" {
		t.Errorf("got %v, %v, want the one that is free, 10.1.0.7", ips, err)
	}
	if ips, err := a.next(func(string) bool { return true }); !errors.Is(err, errNoAddress) {
		t.Errorf("got %v, %v of a share that is used up", ips, err)
	}
}

func TestPodsOfAnEarlierLifeOfTheNodeKeepTheirAddresses(t *testing.T) {
	a := Addresses{Dual: true}
	ips, err := a.next(func(ip string) bool { return ip == "10.1.0.1" || ip == "10.1.0.2" })
	if err != nil || ips[0].IP != "10.1.0.3" || ips[1].IP != "fd00:1::3" {
		t.Errorf("got %v, %v, want the first that no pod has, 10.1.0.3 and fd00:1::3", ips, err)
	}
}

func TestSmallSharesAreForManyNodes(t *testing.T) {
	for node, want := range map[int]string{0: "10.1.0.1", 1: "10.1.1.1", MaxSmallNodes - 1: "10.95.255.1"} {
		a := Addresses{Node: node, Small: true}
		if ips, err := a.next(none); err != nil || ips[0].IP != want {
			t.Errorf("node %d: got %v, %v, want %s", node, ips, err, want)
		}
	}
	a := Addresses{Small: true, given: 254}
	if ips, err := a.next(func(ip string) bool { return ip != "10.1.0.7" }); err != nil || ips[0].IP != "10.1.0.7" {
		t.Errorf("got %v, %v, want the one that is free", ips, err)
	}
}
