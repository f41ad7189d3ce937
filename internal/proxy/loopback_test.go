package proxy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/test/wait"
)

// closed waits until nobody listens at the address.
func (s *site) closed(from *nettest.Host, addr string) {
	s.t.Helper()
	wait.Until(s.t, func() error {
		c, err := from.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return fmt.Errorf("%s: a connection was made, want that it is refused", addr)
		}
		return nil
	})
}

// answersAll waits until just those answer connections, and returns who did.
func (s *site) answersAll(from *nettest.Host, addr, want string) (names string) {
	s.t.Helper()
	wait.Until(s.t, func() error {
		names = ""
		for range 3 * len(want) {
			name, _, err := from.Ask("tcp", addr)
			if err != nil {
				return fmt.Errorf("%s: %w", addr, err)
			}
			names += name
		}
		for _, name := range want {
			if !strings.ContainsRune(names, name) {
				return fmt.Errorf("%s: %s answered, want all of %s", addr, names, want)
			}
		}
		if rest := strings.Trim(names, want); rest != "" {
			return fmt.Errorf("%s: %s answered, want %s alone", addr, names, want)
		}
		return nil
	})
	return names
}

func TestNodePortsAreServedAtLocalhostOfIPv6(t *testing.T) {
	s := newSite(t)
	s.serve()
	on := func(port int32) func(*corev1.Service) {
		return func(svc *corev1.Service) { svc.Spec.Ports[0].NodePort = port }
	}
	web := func(change ...func(*corev1.Service)) *corev1.Service {
		return service("web", "fd00:96::a", append([]func(*corev1.Service){nodePort}, change...)...)
	}
	all := backends("web", "fd00:244:0:1::2@n1", "fd00:244:0:1::3@n1", "fd00:244:0:2::2@n2")
	far := backends("web", "fd00:244:0:2::2@n2")
	c := clienttest.NewFilled(web(), all)
	s.run(Options{Transport: c})
	s.answersAll(s.n1, "[::1]:30080", "abc")
	// As from the node's own addresses, a policy of this node alone does not count.
	c.Put(web(func(svc *corev1.Service) { svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }), far)
	s.answersAll(s.n1, "[::1]:30080", "c")
	c.Put(web(sticking), all)
	wait.Until(t, func() error {
		if names, _ := s.turns(s.n1, "[::1]:30080", 6); strings.Trim(names, names[:1]) != "" {
			return fmt.Errorf("%s answered, want one endpoint", names)
		}
		return nil
	})
	c.Put(web(on(30081)))
	s.closed(s.n1, "[::1]:30080")
	s.answersAll(s.n1, "[::1]:30081", "abc")
	// A port goes from one Service to another at one moment.
	c.Put(web(on(30082)), service("api", "fd00:96::b", nodePort, on(30081)))
	apis := backends("api", "fd00:244:0:2::2@n2")
	c.Put(apis)
	s.answersAll(s.n1, "[::1]:30081", "c")
	s.answersAll(s.n1, "[::1]:30082", "abc")
	c.Put(backends("web", "fd00:244:0:2::2@n2"), web())
	s.answersAll(s.n1, "[::1]:30080", "c")
	c.Remove(far)
	s.closed(s.n1, "[::1]:30080")
	c.Remove(service("api", "fd00:96::b"))
	s.closed(s.n1, "[::1]:30081")
}

func TestNodePortsAreNotServedAtLocalhostUnlessTheirAddressesAreSaidToHaveIt(t *testing.T) {
	for name, tc := range map[string]struct {
		config Config
		want   bool
	}{
		"all":       {Config{}, true},
		"localhost": {Config{NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("::1/128")}}, true},
		"primary":   {Config{NodePortPrimary: true}, false},
		"others":    {Config{NodePortAddresses: mustPrefixes("fd00:1::/64", "127.0.0.0/8")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.serve()
			node := &corev1.Node{}
			node.Name = "n1"
			objects := []resource.Object{node, service("web", "10.96.0.10 fd00:96::a", nodePort), backends("web", "fd00:244:0:1::2@n1"), backends("web", "10.244.1.2@n1")}
			p := s.run(Options{Config: tc.config, Transport: clienttest.NewFilled(objects...)})
			soon(t, "the rules are in force", p.Synced)
			if tc.want {
				s.answersAll(s.n1, "[::1]:30080", "a")
			} else {
				s.closed(s.n1, "[::1]:30080")
			}
		})
	}
}
