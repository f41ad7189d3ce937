package cluster

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOptionsWorkWithoutAny(t *testing.T) {
	o, err := Options{NodeIP: netip.MustParseAddr("192.0.2.7")}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if o.DataDir != "/var/lib/kemudi" || o.RunDir != "/run/kemudi" || o.SecurePort != 6443 || o.PodLogsDir != "/var/log/pods" || o.NodeName != strings.ToLower(host) ||
		o.AdvertiseAddress != o.NodeIP || o.BindAddress != netip.IPv6Unspecified() || o.Logger == nil || o.Step == nil {
		t.Errorf("got %+v", o)
	}
	o.Step("nobody listens", true)
}

func TestOptionsKeepWhatIsGiven(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	given := Options{
		DataDir: "data", RunDir: "./run/", NodeName: "Node-1", NodeIP: netip.MustParseAddr("192.0.2.7"), AdvertiseAddress: netip.MustParseAddr("192.0.2.8"),
		BindAddress: netip.MustParseAddr("127.0.0.1"), SecurePort: 7443, PodLogsDir: "/logs",
	}
	o, err := given.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if o.DataDir != filepath.Join(dir, "data") || o.RunDir != filepath.Join(dir, "run") {
		t.Errorf("directories: got %s and %s; want them absolute", o.DataDir, o.RunDir)
	}
	if o.NodeName != given.NodeName || o.NodeIP != given.NodeIP || o.AdvertiseAddress != given.AdvertiseAddress || o.BindAddress != given.BindAddress || o.SecurePort != 7443 || o.PodLogsDir != "/logs" {
		t.Errorf("got %+v", o)
	}
}

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
