package proxy

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
)

// scheduled is a site whose proxy has a scheduler, and three services of all three pods.
func scheduled(t *testing.T, by Scheduler) *site {
	s := newSite(t)
	s.model = NewModel(Config{NodeName: "n1", ClusterCIDRs: mustPrefixes("10.244.0.0/16", "fd00:244::/48"), Scheduler: by})
	s.serve()
	for i, name := range []string{"web", "other", "third"} {
		at := fmt.Sprintf("10.96.0.%d fd00:96::%d", 10+i, 10+i)
		kind := func(*corev1.Service) {}
		if i == 0 {
			kind = nodePort
		}
		s.put(service(name, at, kind), backends(name, "10.244.1.2@n1", "10.244.1.3@n1", "10.244.2.2@n2"), backends(name, "fd00:244:0:1::2@n1", "fd00:244:0:1::3@n1", "fd00:244:0:2::2@n2"))
	}
	return s
}

// asked asks one after another who is there.
func (s *site) asked(from *nettest.Host, network, addr string, n int) (all string) {
	s.t.Helper()
	for range n {
		name, _, err := from.Ask(network, addr)
		if err != nil {
			s.t.Fatalf("%s asks %s %s: %v", from.Name, network, addr, err)
		}
		all += name
	}
	return all
}

func TestEndpointsInTurn(t *testing.T) {
	s := scheduled(t, InTurn)
	orders := []string{"abcabcabc", "bcabcabca", "cabcabcab"}
	for _, network := range []string{"tcp", "udp"} {
		got := s.asked(s.client, network, "10.96.0.10:80", 9)
		if !slices.Contains(orders, got) {
			t.Errorf("%s: the pods answer in the order %q, want in turn", network, got)
		}
		// A service's turn is its own, whatever is asked of others meanwhile, and by whichever way.
		if next := s.asked(s.client, network, "10.96.0.11:80", 1) + s.asked(s.client, network, "192.168.1.1:30080", 1); next[1] != got[0] {
			t.Errorf("%s: after %q the node port leads to %q, want the next in turn", network, got, next[1:])
		}
	}
	s.put(backends("web", "10.244.1.3@n1", "10.244.2.2@n2"))
	if got := s.asked(s.client, "udp", "10.96.0.10:80", 6); got != "bcbcbc" && got != "cbcbcb" {
		t.Errorf("two pods are left: %q", got)
	}
	s.model.DeleteService("default", "web")
	s.applyStep(s.model.Commit())
	if got := s.asked(s.client, "tcp", "10.96.0.12:80", 3); len(got) != 3 {
		t.Errorf("another service has gone: got %q", got)
	}
	if n := len(s.model.tables[0].turns.of); n != 4 {
		t.Errorf("chains of %d pools, want those of two services with two ports", n)
	}
}

func TestEndpointsByTheAddressOfTheClient(t *testing.T) {
	s := scheduled(t, BySource)
	seen := map[string]bool{}
	for i := range 20 {
		s.client.Addr("eth0", fmt.Sprintf("192.168.1.%d/24", 120+i))
		var first string
		for range 3 {
			conn, err := s.client.DialFrom("udp", fmt.Sprintf("192.168.1.%d:0", 120+i), "10.96.0.10:80")
			if err != nil {
				t.Fatal(err)
			}
			name, _, err := nettest.AskOn(conn)
			_ = conn.Close()
			if err != nil || first != "" && name != first {
				t.Errorf("client %d: got %q, %v, want %q as before", i, name, err, first)
			}
			first = name
		}
		seen[first] = true
	}
	if len(seen) != 3 {
		t.Errorf("20 clients get to %v, want to all pods", slices.Sorted(maps.Keys(seen)))
	}
}

func TestEndpointsByTheAddressOfTheService(t *testing.T) {
	s := scheduled(t, ByDestination)
	for _, at := range []string{"10.96.0.10:80", "10.96.0.11:80", "10.96.0.12:80", "[fd00:96::10]:80", "192.168.1.1:30080"} {
		from := s.client
		if at[0] == '[' {
			from = s.a // the client has no way there
		}
		got := s.asked(from, "tcp", at, 6)
		for i := range got {
			if got[i] != got[0] {
				t.Errorf("%s: the pods %q answer, want one of them", at, got)
				break
			}
		}
	}
}

func TestSchedulersAreThoseOfIPVS(t *testing.T) {
	for name, want := range map[string]Scheduler{"": InTurn, "rr": InTurn, "sh": BySource, "dh": ByDestination} {
		if got, exact, err := SchedulerOf(name); got != want || !exact || err != nil {
			t.Errorf("%q: got %v, %v, %v, want %v", name, got, exact, err, want)
		}
	}
	for _, name := range []string{"lc", "sed", "nq"} {
		if got, exact, err := SchedulerOf(name); got != InTurn || exact || err != nil {
			t.Errorf("%q: got %v, %v, %v, want in turn, and that it is not exact", name, got, exact, err)
		}
	}
	if _, _, err := SchedulerOf("fastest"); err == nil {
		t.Error("a scheduler that nobody knows is taken")
	}
}
