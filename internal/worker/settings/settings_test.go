package settings

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

var dual = Settings{
	ClusterCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/56")},
	ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	ClusterDNS:    netip.MustParseAddr("10.96.0.10"),
	ClusterDomain: "cluster.local",
	PodNetwork:    "auto",
	VXLANPort:     4789,
	VXLANID:       75,
	CloudProvider: "external",
	NodePorts:     "30000-32767",
	Servers:       map[string]string{"api-audiences": "", "runtime-config": "batch/v1=false"},
}

func TestSettingsAreReadAsTheyWereWritten(t *testing.T) {
	text, err := dual.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(text + "later: {than: us}\n")
	if err != nil || !reflect.DeepEqual(got, dual) {
		t.Errorf("got %+v, %v of\n%s", got, err, text)
	}
}

func TestTextsThatAreNoSettingsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "must all be there",
		"clusterDomain: a\n":       "must all be there",
		"clusterCIDRs: [a]\n":      "read the cluster's settings: ",
		"clusterDNS: 10.96.0.10/8": "read the cluster's settings: ",
		"\x00":                     "read the cluster's settings: ",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestWhatAMachineIsToldMustBeSoInItsCluster(t *testing.T) {
	if err := dual.Check(Settings{}); err != nil {
		t.Errorf("nothing said: got %v", err)
	}
	if err := dual.Check(dual); err != nil {
		t.Errorf("the same said: got %v", err)
	}
	for want, said := range map[string]Settings{
		"--cluster-cidr 10.1.0.0/16: the cluster has 10.244.0.0/16,fd00:244::/56": {ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}},
		"--service-cluster-ip-range 10.2.0.0/16: the cluster has 10.96.0.0/16":    {ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}},
		"--cluster-dns 10.96.0.11: the cluster has 10.96.0.10":                    {ClusterDNS: netip.MustParseAddr("10.96.0.11")},
		"--service-node-port-range 1000-2000: the cluster has 30000-32767":        {NodePorts: "1000-2000"},
		"--cluster-domain k8s.example: the cluster has cluster.local":             {ClusterDomain: "k8s.example"},
		"--pod-network routes: the cluster has auto":                              {PodNetwork: "routes"},
		"--vxlan-port 8472: the cluster has 4789":                                 {VXLANPort: 8472},
		"--cloud-provider aws: the cluster has external":                          {CloudProvider: "aws"},
		"--vxlan-id 1: the cluster has 75":                                        {VXLANID: 1},
	} {
		err := dual.Check(said)
		if err == nil || !strings.HasPrefix(err.Error(), want+"; ") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestWhatAServerIsToldMustBeSoOnTheOthers(t *testing.T) {
	said := Settings{Servers: map[string]string{"api-audiences": "", "later": "than us", "runtime-config": "batch/v1=false"}}
	if err := dual.Check(said); err != nil {
		t.Errorf("the same, and what they do not know: got %v", err)
	}
	said.Servers = map[string]string{"api-audiences": "vault", "runtime-config": ""}
	const want = "--api-audiences vault: the other servers have none; leave the flag out to have what they have, or stop them all to change it\n" +
		"--runtime-config none: the other servers have batch/v1=false; leave the flag out to have what they have, or stop them all to change it"
	if err := dual.Check(said); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
