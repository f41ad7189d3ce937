package plugins

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/trace"
)

func TestPodsTolerateSilentNodesForAWhile(t *testing.T) {
	c := only(t, admissiontest.New(t).Options(), "DefaultTolerationSeconds")
	const unready, unreachable = "node.kubernetes.io/not-ready:NoExecute 300", "node.kubernetes.io/unreachable:NoExecute 300"
	for _, q := range []struct{ spec, want string }{
		{"", unready + ", " + unreachable},
		{"tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]", "node.kubernetes.io/not-ready:NoExecute 5, " + unreachable},
		{"tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists}]", "node.kubernetes.io/unreachable: -1, " + unready},
		{"tolerations: [{operator: Exists}]", ": -1"},
		{"tolerations: [{operator: Exists, effect: NoSchedule}]", ":NoSchedule -1, " + unready + ", " + unreachable},
	} {
		a := admissiontest.Request(t, "Pod: {metadata: {namespace: team, name: x}, spec: {"+q.spec+"}}", "")
		if got := admissiontest.Run(t, c, a); got != "" {
			t.Fatal(got)
		}
		var got []string
		for _, tol := range a.Object.(*corev1.Pod).Spec.Tolerations {
			seconds := int64(-1)
			if tol.TolerationSeconds != nil {
				seconds = *tol.TolerationSeconds
			}
			got = append(got, fmt.Sprintf("%s:%s %d", tol.Key, tol.Effect, seconds))
		}
		if strings.Join(got, ", ") != q.want {
			t.Errorf("%q: got %s, want %s", q.spec, got, q.want)
		}
	}
}

func TestHowLongPodsTolerateSilentNodesCanBeSaid(t *testing.T) {
	o := admissiontest.New(t).Options()
	o.Stay = admission.Stay{NotReady: new(int64(0)), Unreachable: new(int64(7))}
	a := admissiontest.Request(t, "Pod: {metadata: {namespace: team, name: x}}", "")
	if got := admissiontest.Run(t, only(t, o, "DefaultTolerationSeconds"), a); got != "" {
		t.Fatal(got)
	}
	got := a.Object.(*corev1.Pod).Spec.Tolerations
	if len(got) != 2 || *got[0].TolerationSeconds != 0 || *got[1].TolerationSeconds != 7 {
		t.Errorf("got %+v, want 0 and 7 seconds", got)
	}
}

func TestRuntimeClassIsTakenOver(t *testing.T) {
	trace.Proves(t, "C-313")
	w := admissiontest.New(t,
		"RuntimeClass: {metadata: {name: plain}, handler: runc}",
		"RuntimeClass: {metadata: {name: vm}, handler: kata, overhead: {podFixed: {cpu: 250m}}, scheduling: {nodeSelector: {vm: 'yes'}, tolerations: [{key: vm, operator: Exists}]}}")
	c := only(t, w.Options(), "RuntimeClass")
	for _, q := range []struct{ spec, want, refused string }{
		{spec: "{}", want: "map[] map[] []"},
		{spec: "{runtimeClassName: plain}", want: "map[] map[] []"},
		{spec: "{runtimeClassName: vm}", want: "map[cpu:250m] map[vm:yes] [vm]"},
		{spec: "{runtimeClassName: vm, overhead: {cpu: 0.25}, nodeSelector: {vm: 'yes', disk: ssd}, tolerations: [{key: vm, operator: Exists}]}", want: "map[cpu:250m] map[disk:ssd vm:yes] [vm]"},
		{spec: "{runtimeClassName: gone}", refused: `pods "x" is forbidden: pod rejected: RuntimeClass "gone" not found`},
		{spec: "{overhead: {cpu: 1}}", refused: `pods "x" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead`},
		{spec: "{runtimeClassName: plain, overhead: {cpu: 1}}", refused: `pods "x" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead`},
		{spec: "{runtimeClassName: vm, overhead: {cpu: 1}}", refused: `pods "x" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead`},
		{spec: "{runtimeClassName: vm, nodeSelector: {vm: 'no'}}", refused: `pods "x" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no`},
	} {
		a := admissiontest.Request(t, "Pod: {metadata: {namespace: team, name: x}, spec: "+q.spec+"}", "")
		if got := admissiontest.Run(t, c, a); got != q.refused {
			t.Errorf("%s: got %s, want %s", q.spec, got, q.refused)
		}
		if q.refused != "" {
			continue
		}
		s := a.Object.(*corev1.Pod).Spec
		overhead, keys := map[corev1.ResourceName]string{}, []string{}
		for k, v := range s.Overhead {
			overhead[k] = v.String()
		}
		for _, tol := range s.Tolerations {
			keys = append(keys, tol.Key)
		}
		if got := fmt.Sprint(overhead, s.NodeSelector, keys); got != q.want {
			t.Errorf("%s: got %s, want %s", q.spec, got, q.want)
		}
	}
}

func TestPluginsForPodsThatAreOffByDefault(t *testing.T) {
	trace.Proves(t, "IMG-008", "IMG-064")
	w := admissiontest.New(t, "Namespace: {metadata: {name: team, annotations: {scheduler.alpha.kubernetes.io/node-selector: 'env=test,team=a'}}}")
	pod := func(spec string) *admission.Attributes {
		return admissiontest.Request(t, "Pod: {metadata: {namespace: team, name: x}, spec: "+spec+"}", "")
	}
	a := pod("{initContainers: [{name: i, imagePullPolicy: Never}], containers: [{name: a, imagePullPolicy: IfNotPresent}, {name: b}]}")
	if got := admissiontest.Run(t, only(t, w.Options(), "AlwaysPullImages"), a); got != "" {
		t.Error(got)
	}
	s := a.Object.(*corev1.Pod).Spec
	for _, c := range append(s.InitContainers, s.Containers...) {
		if c.ImagePullPolicy != corev1.PullAlways {
			t.Errorf("AlwaysPullImages: container %s has policy %s", c.Name, c.ImagePullPolicy)
		}
	}
	a = pod("{nodeSelector: {env: test, disk: ssd}}")
	if got := admissiontest.Run(t, only(t, w.Options(), "PodNodeSelector"), a); got != "" || fmt.Sprint(a.Object.(*corev1.Pod).Spec.NodeSelector) != "map[disk:ssd env:test team:a]" {
		t.Errorf("PodNodeSelector: got %q, %v", got, a.Object.(*corev1.Pod).Spec.NodeSelector)
	}
	want := `pods "x" is forbidden: pod node label selector conflicts with its namespace node label selector`
	if got := admissiontest.Run(t, only(t, w.Options(), "PodNodeSelector"), pod("{nodeSelector: {env: prod}}")); got != want {
		t.Errorf("PodNodeSelector: got %s, want %s", got, want)
	}
	o := w.Options()
	o.Config = admission.Configurations{"PodNodeSelector": []byte("podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: env=any, team: 'env=test,team=a', other: env=test}")}
	if want := `pods "x" is forbidden: pod node label selector labels conflict with its namespace whitelist`; admissiontest.Run(t, only(t, o, "PodNodeSelector"), pod("{nodeSelector: {disk: ssd}}")) != want {
		t.Errorf("PodNodeSelector, a label that is not allowed: want %s", want)
	}
	w.Set(t, "Namespace: {metadata: {name: team}}")
	o.Config["PodNodeSelector"] = []byte("podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: env=any}")
	a = pod("{}")
	if got := admissiontest.Run(t, only(t, o, "PodNodeSelector"), a); got != "" || fmt.Sprint(a.Object.(*corev1.Pod).Spec.NodeSelector) != "map[env:any]" {
		t.Errorf("PodNodeSelector of the cluster: got %q, %v", got, a.Object.(*corev1.Pod).Spec.NodeSelector)
	}
	apart := func(key string) *admission.Attributes {
		return pod("{affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: " + key + "}]}}}")
	}
	c := only(t, w.Options(), "LimitPodHardAntiAffinityTopology")
	want = `pods "x" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey topology.kubernetes.io/zone but only key kubernetes.io/hostname is allowed`
	if got := admissiontest.Run(t, c, apart("topology.kubernetes.io/zone")); got != want {
		t.Errorf("anti-affinity by zone: got %s, want %s", got, want)
	}
	if got := admissiontest.Run(t, c, apart("kubernetes.io/hostname")); got != "" {
		t.Errorf("anti-affinity by host: got %s", got)
	}
}
