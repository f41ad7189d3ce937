package features

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/version"
)

func TestGatesAreKnownByName(t *testing.T) {
	g := Gates{}
	if err := g.Say("WatchList=true, AllAlpha=true,CompositePodGroup=true,"); err != nil {
		t.Fatal(err)
	}
	if err := g.Say("SidecarContainers=true"); err != nil {
		t.Fatal(err)
	}
	if want := (Gates{"WatchList": true, "AllAlpha": true, "CompositePodGroup": true, "SidecarContainers": true}); !maps.Equal(g, want) {
		t.Errorf("got %v, want %v", g, want)
	}
	if got, want := strings.Join(g.Idle(), " "), "AllAlpha CompositePodGroup"; got != want {
		t.Errorf("without effect: got %s, want %s", got, want)
	}
	for text, want := range map[string]bool{
		"": false, "CoordinatedLeaderElection=true": true, "AllBeta=true": true, "AllBeta=true,CoordinatedLeaderElection=false": false, "AllAlpha=true": false,
	} {
		g := Gates{}
		if err := g.Say(text); err != nil || g.On(CoordinatedLeaderElection) != want {
			t.Errorf("%s: got %v, %v, want %v", text, g.On(CoordinatedLeaderElection), err, want)
		}
		if idle := g.Idle(); len(idle) > 0 && idle[0] != "AllAlpha" {
			t.Errorf("%s: got %v without effect", text, idle)
		}
	}
	newest := "PodsAPI=true,StaleControllerConsistencyHPA=false,NodeDeclaredFeatures=true,KubeProxyIPVS=true,DRAResourcePoolStatus=true,GenericWorkload=true"
	if err := (Gates{}).Say(newest); err != nil {
		t.Errorf("those of the last two releases: got %v", err)
	}
	for text, want := range map[string]string{
		"WatchLst=true":              "unrecognized feature gate: WatchLst",
		"WatchList":                  "missing bool value for WatchList",
		"WatchList=on":               `invalid value of WatchList=on, err: strconv.ParseBool: parsing "on": invalid syntax`,
		"NodeDeclaredFeatures=false": "cannot set feature gate NodeDeclaredFeatures to false, feature is locked to true",
		"SidecarContainers=false":    "cannot set feature gate SidecarContainers to false, feature is locked to true",
	} {
		if err := (Gates{}).Say(text); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// TestReleasesKnowTheirFeatures holds the list against what the servers of the release before show of theirs.
func TestReleasesKnowTheirFeatures(t *testing.T) {
	l, err := version.ParseLevel([]string{"1.36"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, known := range map[string]bool{
		"PodsAPI": true, "ShardedListAndWatch": true, "PLEGOnDemandRelist": true, "WorkloadWithJob": true, "DRAResourcePoolStatus": true,
		"ManifestBasedAdmissionControlConfig": true, "CoordinatedLeaderElection": true, "StaleControllerConsistencyJob": true,
		"StaleControllerConsistencyHPA": false, "CompositePodGroup": false, "H2CContainerProbe": false, "WatchListCompression": false,
		"StatefulSetRecreateStrategy": false, "VolumeBindMountOptions": false, "NFTablesNetlink": false, "EvictionRequestAPI": false,
	} {
		if got := (Gates{name: true}).CheckAt(l) == nil; got != known {
			t.Errorf("%s: got known by 1.36 %v, want %v", name, got, known)
		}
	}
}

func TestEachFeatureIsToldOfOnce(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(Metrics{Gates: Gates{"CoordinatedLeaderElection": true, "CompositePodGroup": true}}); err != nil {
		t.Fatal(err)
	}
	all, err := reg.Gather() // which refuses doubles
	if err != nil || len(all) != 1 || len(all[0].GetMetric()) < 200 {
		t.Fatalf("got %d, %v, want the metric with all features", len(all), err)
	}
	for name, want := range map[string]float64{"CoordinatedLeaderElection": 1, "CompositePodGroup": 0, "WatchList": 1} {
		for _, m := range all[0].GetMetric() {
			if m.GetLabel()[0].GetValue() == name && m.GetGauge().GetValue() != want {
				t.Errorf("%s: got %v, want %v", name, m.GetGauge().GetValue(), want)
			}
		}
	}
	for _, g := range groups {
		if names := strings.Fields(g.names); !slices.IsSorted(names) {
			t.Errorf("the features of stage %q are in no order", g.stage)
		}
	}
}

func TestGatesAreRefusedThatTheReleaseDoesNotKnow(t *testing.T) {
	for at, want := range map[string]string{
		"1.37": "",
		"1.36": "cannot set feature gate EtcdRangeStream to false, feature is PreAlpha at emulated version 1.36, min compatibility version 1.35",
		"1.35": "cannot set feature gate AtomicFIFO to false, feature is PreAlpha at emulated version 1.35, min compatibility version 1.34",
		"1.34": "cannot set feature gate AtomicFIFO to false, feature is PreAlpha at emulated version 1.34, min compatibility version 1.34",
	} {
		l, err := version.ParseLevel([]string{at}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := (Gates{"NodeDeclaredFeatures": true, "WatchList": true, "AtomicFIFO": false, "EtcdRangeStream": false}).CheckAt(l); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("at %s: got %q, want %q", at, got, want)
		}
	}
	for _, s := range since {
		names := strings.Fields(s.names)
		if !slices.IsSorted(names) {
			t.Errorf("the features of 1.%d are in no order", s.minor)
		}
		for _, name := range names {
			if find(name) == nil {
				t.Errorf("there is no feature %s", name)
			}
		}
	}
}
