package podnet

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// noted is what the CNI library notes of a pod with two addresses.
const noted = `{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"x",
"cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","team"],["K8S_POD_NAME","web-0"],["K8S_POD_INFRA_CONTAINER_ID","c1"],["K8S_POD_UID","u1"]],
"result":{"cniVersion":"1.0.0","interfaces":[{"name":"kemudi0","mac":"0a:58:0a:f4:01:01"},{"name":"veth1","mac":"0e:00:00:00:00:01"},
{"name":"eth0","mac":"0e:00:00:00:00:02","sandbox":"/run/netns/x"}],
"ips":[{"interface":2,"address":"10.244.1.2/24","gateway":"10.244.1.1"},{"interface":2,"address":"fd00:244:0:1::2/64"}]}}`

func TestAttachedPodsAreReadFromWhatWasNoted(t *testing.T) {
	t.Parallel()
	o := Options{CNIConfDir: t.TempDir(), DataDir: t.TempDir(), CNICacheDir: t.TempDir(), RuntimeCacheDir: t.TempDir()}
	dir := filepath.Join(o.RuntimeCacheDir, "results")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{o.networkName() + "-c1-eth0": noted, "kemudi-of-another-cluster-c2-eth0": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := Attached(o)
	if err != nil || len(list) != 1 {
		t.Fatalf("got %+v, %v, want one pod", list, err)
	}
	if err := os.WriteFile(filepath.Join(dir, o.networkName()+"-c0-eth0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if some, err := Attached(o); err == nil || len(some) != 1 {
		t.Errorf("with one that cannot be read: got %+v, %v, want the other one, and an error", some, err)
	}
	a := list[0]
	if a.Namespace != "team" || a.Name != "web-0" || a.UID != "u1" || a.Link != "veth1" || a.MAC != "0e:00:00:00:00:02" ||
		!slices.Equal(a.Addrs, []netip.Addr{netip.MustParseAddr("10.244.1.2"), netip.MustParseAddr("fd00:244:0:1::2")}) {
		t.Errorf("got %+v", a)
	}
}
