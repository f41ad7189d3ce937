package worker

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/kemudi/kemudi/internal/worker/settings"
)

// Two servers of a machine, in network namespaces of their own, share neither
// cgroup nor anything that reset removes.
func TestServersOfAMachineHaveTheirOwnCgroups(t *testing.T) {
	for dir, want := range map[string]string{DefaultRunDir: "/kemudi", "/run/other": "/kemudi-other"} {
		if got := cgroupParent(dir); got != want {
			t.Errorf("%s: got %s, want %s", dir, got, want)
		}
	}
	parts := map[string]bool{}
	for _, r := range Removers("/data", "/run/other") {
		if parts[r.Part] || r.Remove == nil {
			t.Errorf("remover of %q is there twice, or does nothing", r.Part)
		}
		parts[r.Part] = true
	}
}

func TestServiceProxyIsToldWhatPeopleSaidOfNodePorts(t *testing.T) {
	only, pods := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	o := Options{NodeName: "n1", NodePorts: NodePorts{Addresses: only, Primary: true, MasqueradeAll: true}}
	if c := o.proxy(&settings.Settings{ClusterCIDRs: pods}); !slices.Equal(c.NodePortAddresses, only) || !c.NodePortPrimary || !c.MasqueradeAll || c.NodeName != "n1" || !slices.Equal(c.ClusterCIDRs, pods) {
		t.Errorf("got %+v", c)
	}
}
