package dialback

import (
	"net/netip"
	"testing"
)

func TestScopeHoldsTheNodesBusinessAlone(t *testing.T) {
	addresses := func(list ...string) (out []netip.Addr) {
		for _, a := range list {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	s := Scope{
		NodeAgent: "127.0.0.1:10250",
		Pods: func() []netip.Prefix {
			return []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:1::/64")}
		},
		Host: func(a netip.AddrPort) bool { return a.Port() == 9100 },
		own: func() ([]netip.Addr, error) {
			return addresses("127.0.0.1", "::1", "192.0.2.7", "2001:db8::7", "10.244.1.1", "fd00:1::1"), nil
		},
	}
	for _, c := range []struct{ asked, want string }{
		{NodeAgent, "127.0.0.1:10250"},
		{"10.244.1.7:80", "10.244.1.7:80"},
		{"[fd00:1::7]:80", "[fd00:1::7]:80"},
		{"[::ffff:10.244.1.7]:80", "10.244.1.7:80"},
		{"192.0.2.7:9100", "192.0.2.7:9100"}, // a pod in the node's network
		{"[2001:db8::7]:9100", "[2001:db8::7]:9100"},
		{"192.0.2.7:22", ""},     // the machine's own
		{"192.0.2.7:10250", ""},  // is asked for by its name
		{"10.244.1.1:53", ""},    // the bridge is the machine's
		{"10.244.2.7:80", ""},    // another node's pod
		{"192.0.2.8:10250", ""},  // another machine
		{"10.96.0.1:443", ""},    // a service
		{"198.51.100.1:443", ""}, // the world
		{"127.0.0.1:10250", ""},
		{"127.0.0.1:9100", ""},
		{"[::1]:9100", ""},
		{"[::ffff:127.0.0.1]:9100", ""},
		{"0.0.0.0:9100", ""},
		{"[::]:9100", ""},
		{"169.254.169.254:80", ""},
		{"[fe80::1%eth0]:80", ""},
		{"[fd00:1::7%eth0]:80", ""},
		{"224.0.0.1:80", ""},
		{"10.244.1.7:0", ""},
		{"10.244.1.7", ""},
		{"010.244.1.7:80", ""},
		{"localhost:80", ""},
		{"node-agent:10250", ""},
		{"", ""},
	} {
		got, err := s.resolve(c.asked)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: got %q, %v, want %q", c.asked, got, err, c.want)
		}
	}
	s.Host = nil
	if got, err := s.resolve("192.0.2.7:9100"); err == nil {
		t.Errorf("no pod is in the node's network: got %s", got)
	}
	if all, err := machineAddresses(); err != nil || len(all) == 0 {
		t.Errorf("addresses of this machine: got %v, %v", all, err)
	}
}
