package apiserver

import (
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/apiserver/discovery"
	"github.com/kemudi/kemudi/internal/version"
)

func TestOlderReleasesHaveNoNewerVersions(t *testing.T) {
	level, err := version.ParseLevel([]string{"1.34"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const policies = "/apis/admissionregistration.k8s.io/%/mutatingadmissionpolicies" // v1 came with 1.36, v1beta1 with 1.34
	const v1, v1beta1 = "admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1"
	for _, c := range []struct {
		name    string
		e       discovery.Emulation
		on      map[string]bool
		newer   int
		version string
	}{
		{"this release", discovery.Emulation{}, nil, 200, `"emulationMinor":"37"`},
		{"an older one", discovery.Emulation{Level: level}, nil, 404, `"emulationMinor":"34"`},
		{"named, but not to be had", discovery.Emulation{Level: level}, map[string]bool{v1: true}, 404, `"minCompatibilityMinor":"34"`},
		{"named", discovery.Emulation{Level: level, Explicit: true}, map[string]bool{v1: true}, 200, `"emulationMinor":"34"`},
		{"newer versions of what is on", discovery.Emulation{Level: level, Forward: true}, map[string]bool{v1beta1: true}, 200, `"emulationMinor":"34"`},
		{"newer versions of what is off", discovery.Emulation{Level: level, Forward: true}, nil, 404, `"emulationMinor":"34"`},
	} {
		f := newFixture(t, func(o *Options) { o.RuntimeConfig, o.Serving.Emulation = c.on, c.e })
		if got := f.ask("GET", strings.Replace(policies, "%", "v1", 1), "").Code; got != c.newer {
			t.Errorf("%s: got %d, want %d", c.name, got, c.newer)
		}
		f.must(200, "GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", "") // older than all
		if got := f.must(200, "GET", "/version", ""); !strings.Contains(strings.ReplaceAll(got, " ", ""), c.version) {
			t.Errorf("%s: the version is %s, want %s in it", c.name, got, c.version)
		}
	}
	const consider = ". Consider setting --runtime-config-emulation-forward-compatible=true"
	for text, want := range map[string]string{
		v1 + "/mutatingadmissionpolicies": "--runtime-config: cannot enable resource admissionregistration.k8s.io/v1, Resource=mutatingadmissionpolicies in runtime-config because it is introduced at 1.36 after the current version 1.34" + consider,
		"scheduling.k8s.io/v1beta1":       "", // it has older ones
		"storagemigration.k8s.io/v1":      "--runtime-config: cannot enable version storagemigration.k8s.io/v1 in runtime-config because all the resources have been introduced after the current version 1.34" + consider,
		v1:                                "",
	} {
		got, e := "", discovery.Emulation{Level: level}
		if err := e.Check(map[string]bool{text: true}, api.All()); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	if err := (&discovery.Emulation{Forward: true}).Check(nil, nil); err == nil || !strings.Contains(err.Error(), "cannot be set to true if the emulation version is the same as the binary version") {
		t.Errorf("forward from this release: got %v", err)
	}
}
