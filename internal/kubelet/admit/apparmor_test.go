package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestAPodIsNotConfinedLessThanItWants(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{containers: [{name: c}]}`: "",
		`{securityContext: {appArmorProfile: {type: Unconfined}}, containers: [{name: c, securityContext: {appArmorProfile: {type: Unconfined}}}]}`: "",
		`{securityContext: {appArmorProfile: {type: RuntimeDefault}}, containers: [{name: c}]}`:                                                     "AppArmor",
		`{containers: [{name: a}, {name: c, securityContext: {appArmorProfile: {type: Localhost, localhostProfile: p}}}]}`:                          "AppArmor",
		`{initContainers: [{name: i, securityContext: {appArmorProfile: {type: RuntimeDefault}}}], containers: [{name: c}]}`:                        "AppArmor",
	} {
		pod := &v1.Pod{}
		if err := yaml.UnmarshalStrict([]byte("spec: "+spec), pod); err != nil {
			t.Fatal(err)
		}
		reason, message := AppArmor(pod, false)
		if reason != want || (message == "Cannot enforce AppArmor: AppArmor is not enabled on the host") != (want != "") {
			t.Errorf("%s: got %s %q, want %q", spec, reason, message, want)
		}
		if reason, _ := AppArmor(pod, true); reason != "" {
			t.Errorf("%s, where there is AppArmor: got %s", spec, reason)
		}
	}
}
