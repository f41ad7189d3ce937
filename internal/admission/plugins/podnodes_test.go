package plugins

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/admission/admissiontest"
)

func TestPodsCreatedForANodeBearItsTopology(t *testing.T) {
	w := admissiontest.New(t,
		"Node: {metadata: {name: n1, labels: {topology.kubernetes.io/zone: a, topology.kubernetes.io/region: north, disk: ssd}}}",
		"Node: {metadata: {name: bare}}")
	c := only(t, w.Options(), "PodTopologyLabels")
	for _, q := range []struct{ labels, node, want string }{
		{"{app: web}", "n1", "map[app:web topology.kubernetes.io/region:north topology.kubernetes.io/zone:a]"},
		{"{topology.kubernetes.io/zone: mine}", "n1", "map[topology.kubernetes.io/region:north topology.kubernetes.io/zone:a]"},
		{"{topology.kubernetes.io/zone: mine}", "bare", "map[topology.kubernetes.io/zone:mine]"},
		{"{}", "gone", "map[]"},
		{"{}", "''", "map[]"},
	} {
		a := admissiontest.Request(t, "Pod: {metadata: {namespace: team, name: x, labels: "+q.labels+"}, spec: {nodeName: "+q.node+"}}", "")
		if got := admissiontest.Run(t, c, a); got != "" {
			t.Fatal(got)
		}
		if got := fmt.Sprint(a.Object.(*corev1.Pod).Labels); got != q.want {
			t.Errorf("%s on %s: got %s, want %s", q.labels, q.node, got, q.want)
		}
	}
}

func TestChangesThatNodesCannotBearAreRefused(t *testing.T) {
	w := admissiontest.New(t,
		"Node: {metadata: {name: n1, labels: {kubernetes.io/os: linux}}, status: {allocatable: {cpu: 2, memory: 1Gi}}}",
		"Node: {metadata: {name: able, labels: {kubernetes.io/os: linux}}, status: {allocatable: {cpu: 2, memory: 1Gi}, declaredFeatures: [InPlacePodLevelResourcesVerticalScaling]}}",
		"Node: {metadata: {name: bare}, status: {allocatable: {cpu: 2, memory: 1Gi}}}",
		"Node: {metadata: {name: glass, labels: {kubernetes.io/os: windows}}, status: {allocatable: {cpu: 2, memory: 1Gi}}}")
	pod := func(generation int, node, spec string) string {
		return fmt.Sprintf("Pod: {metadata: {namespace: team, name: x, generation: %d}, spec: {nodeName: %s, %s}}", generation, node, spec)
	}
	const of = "containers: [{name: c, resources: {requests: {cpu: %s, memory: %s}}}]"
	sized := func(cpu, memory string) string { return fmt.Sprintf(of, cpu, memory) }
	whole := func(cpu string) string { return sized("1", "1Mi") + ", resources: {requests: {cpu: " + cpu + "}}" }
	for _, q := range []struct{ plugin, sub, now, old, want, cause string }{
		{plugin: "PodResizeValidator", sub: "resize", now: pod(2, "n1", sized("2", "1Gi")), old: pod(1, "n1", sized("1", "1Mi"))},
		{plugin: "PodResizeValidator", sub: "resize", now: pod(2, "n1", sized("3", "1Gi")), old: pod(1, "n1", sized("1", "1Mi")), cause: "NodeCapacity",
			want: `pods "x" is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000`},
		{plugin: "PodResizeValidator", sub: "resize", now: pod(2, "n1", sized("2001m", "2Gi")), old: pod(1, "n1", sized("1", "1Mi")), cause: "NodeCapacity",
			want: `pods "x" is forbidden: node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824`},
		{plugin: "PodResizeValidator", sub: "resize", now: pod(1, "n1", sized("3", "1Gi")), old: pod(1, "n1", sized("3", "1Gi"))},
		{plugin: "PodResizeValidator", sub: "resize", now: pod(2, "''", sized("3", "1Gi")), old: pod(1, "''", sized("1", "1Gi"))},
		{plugin: "PodResizeValidator", sub: "", now: pod(2, "n1", sized("3", "1Gi")), old: pod(1, "n1", sized("1", "1Mi"))},
		{plugin: "PodResizeValidator", sub: "resize", now: pod(2, "gone", sized("2", "1Gi")), old: pod(1, "gone", sized("1", "1Mi")), want: `pods "x" is forbidden: node "gone" not found`},
		{plugin: "PodResizeValidator", sub: "resize", now: pod(2, "bare", sized("2", "1Gi")), old: pod(1, "bare", sized("1", "1Mi"))},
		{plugin: "PodResizeValidator", sub: "resize", now: pod(2, "glass", sized("3", "1Gi")), old: pod(1, "glass", sized("1", "1Mi")), cause: "UnsupportedPlatform",
			want: `pods "x" is forbidden: pod resize is only supported on linux nodes, node "glass" is "windows"`},

		{plugin: "NodeDeclaredFeatureValidator", sub: "resize", now: pod(2, "able", whole("2")), old: pod(1, "able", whole("1"))},
		{plugin: "NodeDeclaredFeatureValidator", sub: "resize", now: pod(2, "n1", sized("2", "1Gi")), old: pod(1, "n1", sized("1", "1Mi"))},
		{plugin: "NodeDeclaredFeatureValidator", sub: "resize", now: pod(2, "n1", whole("2")), old: pod(1, "n1", whole("1")),
			want: `pods "x" is forbidden: pod update requires features InPlacePodLevelResourcesVerticalScaling which are not available on node "n1"`},
		{plugin: "NodeDeclaredFeatureValidator", sub: "resize", now: pod(2, "gone", whole("2")), old: pod(1, "gone", whole("1")), want: `pods "x" is forbidden: node "gone" not found`},
		{plugin: "NodeDeclaredFeatureValidator", sub: "status", now: pod(2, "n1", whole("2")), old: pod(1, "n1", whole("1"))},
	} {
		a := admissiontest.Request(t, q.now, q.old)
		a.Sub = q.sub
		err := only(t, w.Options(), q.plugin).Validate(t.Context(), a)
		got, cause := "", ""
		if status := (&apierrors.StatusError{}); errors.As(err, &status) {
			got = status.Error()
			for _, c := range status.ErrStatus.Details.Causes {
				cause = string(c.Type)
			}
		}
		if got != q.want || cause != q.cause {
			t.Errorf("%s: %s of %s over %s: got %q because of %q, want %q because of %q", q.plugin, q.sub, q.now, q.old, got, cause, q.want, q.cause)
		}
	}
}
