package cluster

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/controllers/nodeipam"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/worker"
)

func TestOptionsWorkWithoutAny(t *testing.T) {
	o, err := Options{Machine: Machine{NodeIP: netip.MustParseAddr("192.0.2.7")}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if o.DataDir != "/var/lib/kemudi" || o.Agent.RootDir != "/var/lib/kemudi/kubelet" || o.RunDir != "/run/kemudi" || o.SecurePort != 6443 || o.Agent.PodLogsDir != "/var/log/pods" || o.NodeName != strings.ToLower(host) ||
		o.AdvertiseAddress != o.NodeIP || o.BindAddress != netip.IPv6Unspecified() || o.Logger == nil || o.Step == nil {
		t.Errorf("got %+v", o)
	}
	o.Step("nobody listens", true)
}

func TestOptionsKeepWhatIsGiven(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	given := Options{
		Machine: Machine{
			DataDir: "data", RunDir: "./run/", NodeName: "node-1", NodeIP: netip.MustParseAddr("192.0.2.7"), Agent: worker.Agent{PodLogsDir: "/logs", RootDir: "root"},
		},
		AdvertiseAddress: netip.MustParseAddr("192.0.2.8"), BindAddress: netip.MustParseAddr("127.0.0.1"), SecurePort: 7443,
	}
	o, err := given.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if o.DataDir != filepath.Join(dir, "data") || o.Agent.RootDir != filepath.Join(dir, "root") || o.RunDir != filepath.Join(dir, "run") {
		t.Errorf("directories: got %s and %s; want them absolute", o.DataDir, o.RunDir)
	}
	if o.NodeName != given.NodeName || o.NodeIP != given.NodeIP || o.AdvertiseAddress != given.AdvertiseAddress || o.BindAddress != given.BindAddress || o.SecurePort != 7443 || o.Agent.PodLogsDir != "/logs" {
		t.Errorf("got %+v", o)
	}
}

func TestAddressesAreOfTheFamiliesOfTheCluster(t *testing.T) {
	prefixes := func(list ...string) (all []netip.Prefix) {
		for _, p := range list {
			all = append(all, netip.MustParsePrefix(p))
		}
		return all
	}
	four, six := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")
	dual := Network{Network: plane.Network{ClusterCIDRs: prefixes("10.244.0.0/16", "fd00:244::/56"), ServiceCIDRs: prefixes("fd00:96::/112", "10.96.0.0/16")}}
	for _, tc := range []struct {
		o       Options
		nodeIPs []string
		dns     string
		refusal string
	}{
		{o: Options{Machine: Machine{NodeIP: four}}, nodeIPs: []string{"192.0.2.7"}, dns: "10.96.0.10"},
		{o: Options{Machine: Machine{NodeIP: six, SecondNodeIP: four}, Network: dual}, nodeIPs: []string{"2001:db8::7", "192.0.2.7"}, dns: "fd00:96::a"},
		{o: Options{Machine: Machine{NodeIP: four, SecondNodeIP: six}, Network: dual}, refusal: "the API is reached at 192.0.2.7 and as a service of fd00:96::/112: --advertise-address (default --node-ip) and the first --service-cluster-ip-range must be of one family"},
		{o: Options{Machine: Machine{NodeIP: four}, AdvertiseAddress: netip.IPv6Loopback()}, refusal: "--advertise-address ::1: pods and other machines reach nothing there" + nextStep},
		{o: Options{Machine: Machine{NodeIP: netip.MustParseAddr("127.0.0.1")}, AdvertiseAddress: four}, refusal: "--node-ip 127.0.0.1: pods and other machines reach nothing there" + nextStep},
		{o: Options{Machine: Machine{NodeIP: four, SecondNodeIP: four}}, refusal: "--node-ip 192.0.2.7,192.0.2.7: want one of each family"},
		{o: Options{Machine: Machine{NodeIP: four}, Network: Network{Network: plane.Network{ServiceCIDRs: prefixes("10.0.0.0/24", "fd00::/112")}}}, refusal: "--service-cluster-ip-range fd00::/112: --cluster-cidr has no pod addresses of that family"},
		{o: Options{Machine: Machine{NodeIP: four}, Network: Network{Network: plane.Network{ClusterCIDRs: prefixes("10.0.0.0/24", "10.1.0.0/24")}}}, refusal: "--cluster-cidr: want one range, or one of each family"},
		{o: Options{Machine: Machine{NodeIP: four}, Controllers: controllers.Options{NodeIPAM: nodeipam.Options{Bits: 26}}}, nodeIPs: []string{"192.0.2.7"}, dns: "10.96.0.10"},
		{o: Options{Machine: Machine{NodeIP: four}, Controllers: controllers.Options{NodeIPAM: nodeipam.Options{Bits: 64}}}, refusal: "--node-cidr-mask-size 64 is not between 1 and 32"},
		{o: Options{Machine: Machine{NodeIP: six}, Network: dual, Controllers: controllers.Options{NodeIPAM: nodeipam.Options{Bits: 26}}}, refusal: "--node-cidr-mask-size is for pods with addresses of one family: here, say --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6"},
	} {
		o, err := tc.o.withDefaults()
		if tc.refusal != "" {
			if err == nil || err.Error() != tc.refusal {
				t.Errorf("%+v: got error %v, want %s", tc.o.Network, err, tc.refusal)
			}
			continue
		}
		if err != nil || !slices.Equal(o.addresses().node(), tc.nodeIPs) || o.Network.ClusterDNS.String() != tc.dns {
			t.Errorf("%+v: got %v, addresses %v and DNS %s, want %v and %s", tc.o.Network, err, o.addresses().node(), o.Network.ClusterDNS, tc.nodeIPs, tc.dns)
		}
	}
}

func TestRunDirectoryTooLongForSocketsIsRefusedBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	o := Options{Machine: Machine{NodeIP: netip.MustParseAddr("192.0.2.7"), DataDir: filepath.Join(t.TempDir(), "data"), RunDir: filepath.Join(t.TempDir(), strings.Repeat("x", 60))}}
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "choose a shorter one (--run-dir)") {
		t.Errorf("got %v, want a refusal that says what to do", err)
	}
	for _, dir := range []string{o.DataDir, o.RunDir} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want that it does not exist", dir, err)
		}
	}
}
