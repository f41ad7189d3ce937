package proxy

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
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
	trace.Proves(t, "SVC-057")
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

// TestEndpointsByTheirConnections has connections that last, and ends those to one pod.
func TestEndpointsByTheirConnections(t *testing.T) {
	s := scheduled(t, Least)
	open := map[string][]net.Conn{}
	dial := func(addr string) (name string) {
		t.Helper()
		now, err := s.kernel.counts()
		if err != nil {
			t.Fatal(err)
		}
		s.model.setCounts(now)
		s.applyStep(s.model.Commit())
		conn, err := s.client.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if name, _, err = nettest.AskOn(conn); err != nil {
			t.Fatal(err)
		}
		open[name] = append(open[name], conn)
		return name
	}
	trace.Proves(t, "SVC-057")
	for round := range 3 {
		for range 3 {
			dial([]string{"10.96.0.10:80", "192.168.1.1:30080"}[round%2])
		}
		if len(open["a"]) != round+1 || len(open["b"]) != round+1 || len(open["c"]) != round+1 {
			t.Fatalf("round %d: %d, %d and %d connections, want as many each", round, len(open["a"]), len(open["b"]), len(open["c"]))
		}
	}
	for _, conn := range open["b"][:2] {
		conn.Close()
	}
	wait.Until(t, func() error { // the kernel hears of it by packets
		now, err := s.kernel.counts()
		if n := now[counted{TCP, netip.MustParseAddrPort("10.244.1.3:8080")}]; err != nil || n != 1 {
			return fmt.Errorf("connections to b: got %d, %v, want 1", n, err)
		}
		return nil
	})
	if got := dial("10.96.0.10:80") + dial("10.96.0.10:80"); got != "bb" {
		t.Errorf("after two connections to b have ended: got %s, want b twice", got)
	}
	// Between two counts those with the fewest are in turn.
	if got := s.asked(s.client, "udp", "10.96.0.10:80", 3); len(got) != 3 || got[0] == got[1] || got[1] == got[2] || got[0] == got[2] {
		t.Errorf("UDP, of which nobody has any: got %s, want all in turn", got)
	}
}

// TestConnectionsAreCountedAsTheyComeAndGo has a proxy that hears of connections by itself.
func TestConnectionsAreCountedAsTheyComeAndGo(t *testing.T) {
	s := newSite(t)
	s.serve()
	c := newCluster(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1", "10.244.1.3@n1"))
	p := s.run(Options{Config: Config{Scheduler: Least}, Transport: c})
	soon(t, "the rules are in force", p.Synced)
	trace.Proves(t, "SVC-057")
	for range 2 {
		long, err := s.client.Dial("tcp", "10.96.0.10:80")
		if err != nil {
			t.Fatal(err)
		}
		busy, _, err := nettest.AskOn(long)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"a": "bbbbbb", "b": "aaaaaa"}[busy]
		wait.Until(t, func() error {
			got := ""
			for range 6 {
				conn, err := s.client.Dial("tcp", "10.96.0.10:80")
				if err != nil {
					return err
				}
				name, _, err := nettest.AskOn(conn)
				conn.Close()
				if err != nil {
					return err
				}
				got += name
			}
			if got != want {
				return fmt.Errorf("while %s has a connection that lasts: got %s, want %s", busy, got, want)
			}
			return nil
		})
		long.Close()
	}
}

func TestEndpointsByTheAddressOfTheClient(t *testing.T) {
	trace.Proves(t, "SVC-057")
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
	trace.Proves(t, "SVC-057")
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
		if got, exact, err := SchedulerOf(name); got != Least || !exact || err != nil {
			t.Errorf("%q: got %v, %v, %v, want the least connections", name, got, exact, err)
		}
	}
	if got, exact, err := SchedulerOf("lblc"); got != ByDestination || exact || err != nil {
		t.Errorf("lblc: got %v, %v, %v, want by destination, and that it is not exact", got, exact, err)
	}
	if _, _, err := SchedulerOf("fastest"); err == nil {
		t.Error("a scheduler that nobody knows is taken")
	}
}
