package limitranger

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
)

const (
	containerDefaults = `LimitRange: {metadata: {namespace: team, name: a}, spec: {limits: [{type: Container,
		default: {cpu: 500m, memory: 1Gi}, defaultRequest: {cpu: 100m, memory: 1Gi}}]}}`
	containerBounds = `LimitRange: {metadata: {namespace: team, name: b}, spec: {limits: [{type: Container,
		min: {cpu: 100m}, max: {cpu: "1"}, maxLimitRequestRatio: {cpu: "2"}}]}}`
	podBounds = `LimitRange: {metadata: {namespace: team, name: c}, spec: {limits: [{type: Pod,
		min: {memory: 100Mi}, max: {memory: 1Gi}}]}}`
	claimBounds = `LimitRange: {metadata: {namespace: team, name: d}, spec: {limits: [{type: PersistentVolumeClaim,
		min: {storage: 1Gi}, max: {storage: 5Gi}}]}}`
)

func TestContainersGetWhatTheirLimitRangeHasForThem(t *testing.T) {
	c := admission.NewChain(New(admissiontest.New(t, containerDefaults).Options()))
	a := admissiontest.Request(t, `Pod: {metadata: {namespace: team, name: x}, spec: {
		initContainers: [{name: i, resources: {limits: {cpu: "1", memory: 2Gi}, requests: {memory: 2Gi}}}],
		containers: [{name: a}, {name: b, resources: {requests: {cpu: 200m}}}]}}`, "")
	if got := admissiontest.Run(t, c, a); got != "" {
		t.Fatal(got)
	}
	pod := a.Object.(*corev1.Pod)
	if got, want := admissiontest.Spec(t, pod), `containers:
- name: a
  resources:
    limits:
      cpu: 500m
      memory: 1Gi
    requests:
      cpu: 100m
      memory: 1Gi
- name: b
  resources:
    limits:
      cpu: 500m
      memory: 1Gi
    requests:
      cpu: 200m
      memory: 1Gi
initContainers:
- name: i
  resources:
    limits:
      cpu: "1"
      memory: 2Gi
    requests:
      cpu: 100m
      memory: 2Gi
`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	const note = "LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for container a; " +
		"memory request for container b; cpu, memory limit for container b; cpu request for init container i"
	if got := pod.Annotations["kubernetes.io/limit-ranger"]; got != note {
		t.Errorf("got note %q, want %q", got, note)
	}
}

func TestPodsOfOtherNamespacesAndPodsThatSayAllAreLeftAsTheyAre(t *testing.T) {
	c := admission.NewChain(New(admissiontest.New(t, containerDefaults).Options()))
	for _, text := range []string{
		`Pod: {metadata: {namespace: other, name: x}, spec: {containers: [{name: a}]}}`,
		`Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a, resources: {requests: {cpu: "1", memory: "1"}, limits: {cpu: "1", memory: "1"}}}]}}`,
	} {
		a, before := admissiontest.Request(t, text, ""), admissiontest.Request(t, text, "")
		if got := admissiontest.Run(t, c, a); got != "" {
			t.Fatal(got)
		}
		if got, want := admissiontest.Spec(t, a.Object.(*corev1.Pod)), admissiontest.Spec(t, before.Object.(*corev1.Pod)); got != want || len(a.Object.(*corev1.Pod).Annotations) > 0 {
			t.Errorf("got %s, want %s without annotations", got, want)
		}
	}
}

func TestLimitRangesRefuseInUpstreamsWords(t *testing.T) {
	c := admission.NewChain(New(admissiontest.New(t, containerBounds, podBounds, claimBounds).Options()))
	pod := func(resources ...string) string {
		for i, r := range resources {
			resources[i] = "{name: c" + string(rune('0'+i)) + ", resources: {" + r + "}}"
		}
		return "Pod: {metadata: {namespace: team, name: x}, spec: {containers: [" + strings.Join(resources, ", ") + "]}}"
	}
	claim := func(resources string) string {
		return "PersistentVolumeClaim: {metadata: {namespace: team, name: x}, spec: {resources: {" + resources + "}}}"
	}
	const memory = "memory: 512Mi"
	for _, q := range []struct{ name, object, want string }{
		{"a pod within all bounds", pod("requests: {cpu: 100m, " + memory + "}, limits: {cpu: 200m, " + memory + "}"), ""},
		{"less than the minimum", pod("requests: {cpu: 50m, " + memory + "}, limits: {cpu: 100m, " + memory + "}"),
			`pods "x" is forbidden: minimum cpu usage per Container is 100m, but request is 50m`},
		{"a limit below the minimum", pod("requests: {cpu: 100m, " + memory + "}, limits: {cpu: 50m, " + memory + "}"),
			`pods "x" is forbidden: minimum cpu usage per Container is 100m, but limit is 50m`},
		{"more than the maximum", pod("requests: {cpu: 1500m, " + memory + "}, limits: {cpu: 1500m, " + memory + "}"),
			`pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 1500m`},
		{"nothing asked for", pod(memory[:0]), `pods "x" is forbidden: [minimum cpu usage per Container is 100m.  No request is specified, ` +
			`maximum cpu usage per Container is 1.  No limit is specified, cpu max limit to request ratio per Container is 2, but no request is specified or request is 0]`},
		{"no limit", pod("requests: {cpu: 100m, " + memory + "}"),
			`pods "x" is forbidden: [maximum cpu usage per Container is 1.  No limit is specified, cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0]`},
		{"too large a ratio", pod("requests: {cpu: 100m, " + memory + "}, limits: {cpu: 300m, " + memory + "}"),
			`pods "x" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000`},
		{"containers that are too large together", pod("requests: {cpu: 100m, memory: 600Mi}, limits: {cpu: 100m, memory: 600Mi}", "requests: {cpu: 100m, memory: 600Mi}, limits: {cpu: 100m, memory: 600Mi}"),
			`pods "x" is forbidden: maximum memory usage per Pod is 1Gi, but limit is 1200Mi`},
		{"a claim within its bounds", claim("requests: {storage: 2Gi}"), ""},
		{"too small a claim", claim("requests: {storage: 1Mi}"),
			`persistentvolumeclaims "x" is forbidden: minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi`},
		{"too large a claim", claim("requests: {storage: 6Gi}"),
			`persistentvolumeclaims "x" is forbidden: maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi`},
	} {
		t.Run(q.name, func(t *testing.T) {
			if got := admissiontest.Run(t, c, admissiontest.Request(t, q.object, "")); got != q.want {
				t.Errorf("got  %s\nwant %s", got, q.want)
			}
		})
	}
}

func TestLimitRangesHoldForResizesAndNoOtherUpdatesOfPods(t *testing.T) {
	c := admission.NewChain(New(admissiontest.New(t, containerBounds).Options()))
	const small, big = `Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a, resources: {requests: {cpu: 1m}, limits: {cpu: 1m}}}]}}`,
		`Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a, resources: {requests: {cpu: "2"}, limits: {cpu: "2"}}}]}}`
	for sub, want := range map[string]string{
		"": "", "status": "", "ephemeralcontainers": "",
		"resize": `pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 2`,
	} {
		a := admissiontest.Request(t, big, small)
		a.Sub = sub
		if got := admissiontest.Run(t, c, a); got != want {
			t.Errorf("%q: got %q, want %q", sub, got, want)
		}
	}
	a := admissiontest.Request(t, big, strings.Replace(small, "name: x", `name: x, deletionTimestamp: "2026-01-01T00:00:00Z"`, 1))
	if a.Sub = "resize"; admissiontest.Run(t, c, a) != "" {
		t.Error("a pod that is being deleted is refused")
	}
}

// TestLimitRangesAreNotHeldAgainstWhatStaysAsItWas changes what a range that has come later
// does not allow as it is.
func TestLimitRangesAreNotHeldAgainstWhatStaysAsItWas(t *testing.T) {
	c := admission.NewChain(New(admissiontest.New(t, containerBounds, podBounds, claimBounds).Options()))
	pod := func(a, b string) string {
		return "Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a, resources: {" + a + "}}, {name: b, resources: {" + b + "}}]}}"
	}
	claim := func(storage, mode string) string {
		return "PersistentVolumeClaim: {metadata: {namespace: team, name: x, labels: {m: " + mode + "}}, spec: {resources: {requests: {storage: " + storage + "}}}}"
	}
	const big, small, large = "requests: {cpu: 5, memory: 4Gi}, limits: {cpu: 5, memory: 4Gi}", "requests: {cpu: 200m}, limits: {cpu: 200m}", "requests: {cpu: 300m}, limits: {cpu: 300m}"
	for _, q := range []struct{ name, now, old, want string }{
		{"the other container", pod(big, large), pod(big, small), ""},
		{"the container itself", pod(strings.ReplaceAll(big, "cpu: 5", "cpu: 4"), small), pod(big, small),
			`pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 4`},
		{"the pod as a whole", pod(strings.ReplaceAll(big, "4Gi", "3Gi"), small), pod(big, small),
			`pods "x" is forbidden: maximum memory usage per Pod is 1Gi, but limit is 3Gi`},
		{"another thing of a claim", claim("9Gi", "b"), claim("9Gi", "a"), ""},
		{"the size of a claim", claim("10Gi", "a"), claim("9Gi", "a"),
			`persistentvolumeclaims "x" is forbidden: maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 10Gi`},
	} {
		a := admissiontest.Request(t, q.now, q.old)
		if strings.HasPrefix(q.now, "Pod") {
			a.Sub = "resize"
		}
		if got := admissiontest.Run(t, c, a); got != q.want {
			t.Errorf("%s: got %q, want %q", q.name, got, q.want)
		}
	}
}

func TestRatiosAreExact(t *testing.T) {
	for _, q := range []struct{ most, limit, request, want string }{
		{"3", "900m", "300m", ""},
		{"1100m", "110m", "100m", ""},
		{"3", "3000000001n", "1", `pods "x" is forbidden: cpu max limit to request ratio per Container is 3, but provided ratio is 3.000000`},
	} {
		r := "LimitRange: {metadata: {namespace: team, name: a}, spec: {limits: [{type: Container, maxLimitRequestRatio: {cpu: " + q.most + "}}]}}"
		pod := "Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a, resources: {limits: {cpu: " + q.limit + "}, requests: {cpu: " + q.request + "}}}]}}"
		c := admission.NewChain(New(admissiontest.New(t, r).Options()))
		if got := admissiontest.Run(t, c, admissiontest.Request(t, pod, "")); got != q.want {
			t.Errorf("%s of %s by %s: got %q, want %q", q.limit, q.request, q.most, got, q.want)
		}
	}
}
