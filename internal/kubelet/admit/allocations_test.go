package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

func TestNodeRejectsPodsThatDoNotTolerateToRunOnIt(t *testing.T) {
	t.Parallel()
	const rejected = "Predicate TaintToleration failed: node(s) had taint {sla: 950}, that the pod didn't tolerate"
	node := &v1.Node{Spec: v1.NodeSpec{Taints: []v1.Taint{
		{Key: "new", Effect: v1.TaintEffectNoSchedule}, {Key: "sla", Value: "950", Effect: v1.TaintEffectNoExecute},
	}}}
	for tolerations, want := range map[string]string{
		"[]":                               rejected,
		"[{operator: Exists}]":             "",
		"[{key: sla, operator: Exists}]":   "",
		"[{key: other, operator: Exists}]": rejected,
		"[{key: sla, operator: Exists, effect: NoSchedule}]": rejected,
		`[{key: sla, value: "950"}]`:                         "",
		`[{key: sla, value: "900"}]`:                         rejected,
		`[{key: sla, operator: Gt, value: "900"}]`:           "", // the taint is greater
		`[{key: sla, operator: Gt, value: "950"}]`:           rejected,
		`[{key: sla, operator: Lt, value: "950"}]`:           rejected,
		`[{key: sla, operator: Lt, value: "951"}]`:           "",
		`[{key: sla, operator: Gt, value: x}]`:               rejected,
	} {
		pod := &v1.Pod{}
		if err := yaml.UnmarshalStrict([]byte("spec: {containers: [{name: c}], tolerations: "+tolerations+"}"), pod); err != nil {
			t.Fatal(err)
		}
		reason, message := Allocations{}.Reject(pod, AllocationOf(pod), node, v1.ResourceList{v1.ResourcePods: resource.MustParse("10")})
		if message != want || (reason == "TaintToleration") != (want != "") {
			t.Errorf("%s: got %s %q, want %q", tolerations, reason, message, want)
		}
	}
}
