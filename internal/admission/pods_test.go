package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/trace"
)

// spec shows parts of the pod in YAML, without the volume's random end.
func spec(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	data, err := yaml.Marshal(pod.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestPodGetsItsServiceAccountsToken(t *testing.T) {
	w := newWorld(t, "ServiceAccount: {metadata: {namespace: team, name: default}, imagePullSecrets: [{name: registry}]}")
	c := w.only(t, "ServiceAccount")
	a := request(t, `Pod: {metadata: {namespace: team, name: x}, spec: {
		initContainers: [{name: i}],
		containers: [{name: a}, {name: b, volumeMounts: [{name: own, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}]}}`, "")
	if got := run(t, c, a); got != "" {
		t.Fatal(got)
	}
	pod := a.Object.(*corev1.Pod)
	if len(pod.Spec.Volumes) != 1 || !strings.HasPrefix(pod.Spec.Volumes[0].Name, "kube-api-access-") || len(pod.Spec.Volumes[0].Name) != len("kube-api-access-")+5 {
		t.Fatalf("volumes: got %+v", pod.Spec.Volumes)
	}
	got := strings.ReplaceAll(spec(t, pod), pod.Spec.Volumes[0].Name, "kube-api-access-abcde")
	want := `containers:
- name: a
  resources: {}
  volumeMounts:
  - mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    name: kube-api-access-abcde
    readOnly: true
- name: b
  resources: {}
  volumeMounts:
  - mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    name: own
imagePullSecrets:
- name: registry
initContainers:
- name: i
  resources: {}
  volumeMounts:
  - mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    name: kube-api-access-abcde
    readOnly: true
serviceAccountName: default
volumes:
- name: kube-api-access-abcde
  projected:
    defaultMode: 420
    sources:
    - serviceAccountToken:
        expirationSeconds: 3607
        path: token
    - configMap:
        items:
        - key: ca.crt
          path: ca.crt
        name: kube-root-ca.crt
    - downwardAPI:
        items:
        - fieldRef:
            apiVersion: v1
            fieldPath: metadata.namespace
          path: namespace
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	before := spec(t, pod)
	if got := run(t, c, a); got != "" || spec(t, pod) != before {
		t.Errorf("a second time: %s\n%s", got, spec(t, pod))
	}
}

func TestTokenIsMountedUnlessPodOrAccountSaysNo(t *testing.T) {
	trace.Proves(t, "C-164")
	for _, q := range []struct {
		account, pod string
		want         bool
	}{
		{"", "", true}, {"", "true", true}, {"", "false", false},
		{"true", "", true}, {"true", "true", true}, {"true", "false", false},
		{"false", "", false}, {"false", "true", true}, {"false", "false", false},
	} {
		says := func(s string) string {
			if s == "" {
				return ""
			}
			return "automountServiceAccountToken: " + s
		}
		w := newWorld(t, "ServiceAccount: {metadata: {namespace: team, name: robot}, "+says(q.account)+"}")
		a := request(t, "Pod: {metadata: {namespace: team, name: x}, spec: {serviceAccountName: robot, containers: [{name: a}], "+says(q.pod)+"}}", "")
		if got := run(t, w.only(t, "ServiceAccount"), a); got != "" {
			t.Fatal(got)
		}
		pod := a.Object.(*corev1.Pod)
		if got := len(pod.Spec.Volumes) == 1 && len(pod.Spec.Containers[0].VolumeMounts) == 1; got != q.want {
			t.Errorf("account says %q, pod says %q: mounted %t, want %t", q.account, q.pod, got, q.want)
		}
	}
}

func TestPodsThatServiceAccountRefuses(t *testing.T) {
	w := newWorld(t, "ServiceAccount: {metadata: {namespace: team, name: default}}")
	c := w.only(t, "ServiceAccount")
	const mirror = `Pod: {metadata: {namespace: team, name: x, annotations: {kubernetes.io/config.mirror: abc}}, spec: `
	for _, q := range []struct{ pod, want string }{
		{"Pod: {metadata: {namespace: team, generateName: web-}, spec: {serviceAccountName: gone}}", `pods "web-" is forbidden: error looking up service account team/gone: serviceaccount "gone" not found`},
		{mirror + "{}}", ""},
		{mirror + "{serviceAccountName: default}}", `pods "x" is forbidden: a mirror pod may not reference service accounts`},
		{mirror + "{volumes: [{name: a, secret: {secretName: s}}]}}", `pods "x" is forbidden: a mirror pod may not reference secrets`},
		{mirror + "{containers: [{env: [{valueFrom: {secretKeyRef: {name: s}}}]}]}}", `pods "x" is forbidden: a mirror pod may not reference secrets`},
		{mirror + "{volumes: [{name: a, projected: {sources: [{serviceAccountToken: {}}]}}]}}", `pods "x" is forbidden: a mirror pod may not use ServiceAccountToken volume projections`},
	} {
		if got := run(t, c, request(t, q.pod, "")); got != q.want {
			t.Errorf("%s: got %s, want %s", q.pod, got, q.want)
		}
	}
}

func TestPriorityComesFromTheClass(t *testing.T) {
	classes := []string{
		"PriorityClass: {metadata: {name: high}, value: 1000, preemptionPolicy: Never}",
		"PriorityClass: {metadata: {name: system-node-critical}, value: 2000001000}",
	}
	preferred := append([]string{"PriorityClass: {metadata: {name: usual}, value: 5, globalDefault: true}", "PriorityClass: {metadata: {name: more}, value: 7, globalDefault: true}"}, classes...)
	pod := func(spec string) string { return "Pod: {metadata: {namespace: team, name: x}, spec: {" + spec + "}}" }
	for _, q := range []struct {
		name          string
		classes       []string
		now, old      string
		want, refused string
	}{
		{name: "no class", classes: classes, now: pod(""), want: " 0 PreemptLowerPriority"},
		{name: "default class of the lowest value", classes: preferred, now: pod(""), want: "usual 5 PreemptLowerPriority"},
		{name: "named class", classes: preferred, now: pod("priorityClassName: high"), want: "high 1000 Never"},
		{name: "system class", classes: classes, now: pod("priorityClassName: system-node-critical"), want: "system-node-critical 2000001000 PreemptLowerPriority"},
		{name: "same values given", classes: classes, now: pod("priorityClassName: high, priority: 1000, preemptionPolicy: Never"), want: "high 1000 Never"},
		{name: "class that is not there", classes: classes, now: pod("priorityClassName: gone"), refused: `pods "x" is forbidden: no PriorityClass with name gone was found`},
		{name: "other value given", classes: classes, now: pod("priorityClassName: high, priority: 7"), refused: `pods "x" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name`},
		{name: "value without class", classes: classes, now: pod("priority: 7"), refused: `pods "x" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name`},
		{name: "other policy given", classes: classes, now: pod("priorityClassName: high, preemptionPolicy: PreemptLowerPriority"), refused: `pods "x" is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec; priority admission controller computed Never from the given PriorityClass name`},
		{name: "update by a client that does not know the fields", classes: preferred, now: pod("priorityClassName: high"), old: pod("priorityClassName: high, priority: 900, preemptionPolicy: Never"), want: "high 900 Never"},
	} {
		w := newWorld(t, q.classes...)
		a := request(t, q.now, q.old)
		refused := run(t, w.only(t, "Priority"), a)
		if refused != q.refused {
			t.Errorf("%s: got %q, want %q", q.name, refused, q.refused)
		}
		s := a.Object.(*corev1.Pod).Spec
		if refused != "" {
			continue
		}
		if got := fmt.Sprintf("%s %d %s", s.PriorityClassName, *s.Priority, *s.PreemptionPolicy); got != q.want {
			t.Errorf("%s: got %s, want %s", q.name, got, q.want)
		}
	}
}

func TestOnlyOnePriorityClassIsTheDefault(t *testing.T) {
	w := newWorld(t, "PriorityClass: {metadata: {name: usual}, value: 5, globalDefault: true}")
	c := w.only(t, "Priority")
	const want = `priorityclasses.scheduling.k8s.io "more" is forbidden: PriorityClass usual is already marked as default. Only one default can exist`
	if got := run(t, c, request(t, "PriorityClass: {metadata: {name: more}, value: 7, globalDefault: true}", "")); got != want {
		t.Errorf("second default: got %s, want %s", got, want)
	}
	usual := "PriorityClass: {metadata: {name: usual}, value: 5, globalDefault: true}"
	if got := run(t, c, request(t, usual, usual)); got != "" {
		t.Errorf("update of the default: got %s", got)
	}
}

func TestPodsTolerateSilentNodesForAWhile(t *testing.T) {
	c := newWorld(t).only(t, "DefaultTolerationSeconds")
	const unready, unreachable = "node.kubernetes.io/not-ready:NoExecute 300", "node.kubernetes.io/unreachable:NoExecute 300"
	for _, q := range []struct{ spec, want string }{
		{"", unready + ", " + unreachable},
		{"tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]", "node.kubernetes.io/not-ready:NoExecute 5, " + unreachable},
		{"tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists}]", "node.kubernetes.io/unreachable: -1, " + unready},
		{"tolerations: [{operator: Exists}]", ": -1"},
		{"tolerations: [{operator: Exists, effect: NoSchedule}]", ":NoSchedule -1, " + unready + ", " + unreachable},
	} {
		a := request(t, "Pod: {metadata: {namespace: team, name: x}, spec: {"+q.spec+"}}", "")
		if got := run(t, c, a); got != "" {
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

func TestRuntimeClassIsTakenOver(t *testing.T) {
	trace.Proves(t, "C-313")
	w := newWorld(t,
		"RuntimeClass: {metadata: {name: plain}, handler: runc}",
		"RuntimeClass: {metadata: {name: vm}, handler: kata, overhead: {podFixed: {cpu: 250m}}, scheduling: {nodeSelector: {vm: 'yes'}, tolerations: [{key: vm, operator: Exists}]}}")
	c := w.only(t, "RuntimeClass")
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
		a := request(t, "Pod: {metadata: {namespace: team, name: x}, spec: "+q.spec+"}", "")
		if got := run(t, c, a); got != q.refused {
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
	trace.Proves(t, "IMG-008")
	w := newWorld(t, "Namespace: {metadata: {name: team, annotations: {scheduler.alpha.kubernetes.io/node-selector: 'env=test,team=a'}}}")
	pod := func(spec string) *Attributes {
		return request(t, "Pod: {metadata: {namespace: team, name: x}, spec: "+spec+"}", "")
	}
	a := pod("{initContainers: [{name: i, imagePullPolicy: Never}], containers: [{name: a, imagePullPolicy: IfNotPresent}, {name: b}]}")
	if got := run(t, w.only(t, "AlwaysPullImages"), a); got != "" {
		t.Error(got)
	}
	s := a.Object.(*corev1.Pod).Spec
	for _, c := range append(s.InitContainers, s.Containers...) {
		if c.ImagePullPolicy != corev1.PullAlways {
			t.Errorf("AlwaysPullImages: container %s has policy %s", c.Name, c.ImagePullPolicy)
		}
	}
	a = pod("{nodeSelector: {env: test, disk: ssd}}")
	if got := run(t, w.only(t, "PodNodeSelector"), a); got != "" || fmt.Sprint(a.Object.(*corev1.Pod).Spec.NodeSelector) != "map[disk:ssd env:test team:a]" {
		t.Errorf("PodNodeSelector: got %q, %v", got, a.Object.(*corev1.Pod).Spec.NodeSelector)
	}
	want := `pods "x" is forbidden: pod node label selector conflicts with its namespace node label selector`
	if got := run(t, w.only(t, "PodNodeSelector"), pod("{nodeSelector: {env: prod}}")); got != want {
		t.Errorf("PodNodeSelector: got %s, want %s", got, want)
	}
	apart := func(key string) *Attributes {
		return pod("{affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: " + key + "}]}}}")
	}
	c := w.only(t, "LimitPodHardAntiAffinityTopology")
	want = `pods "x" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey topology.kubernetes.io/zone but only key kubernetes.io/hostname is allowed`
	if got := run(t, c, apart("topology.kubernetes.io/zone")); got != want {
		t.Errorf("anti-affinity by zone: got %s, want %s", got, want)
	}
	if got := run(t, c, apart("kubernetes.io/hostname")); got != "" {
		t.Errorf("anti-affinity by host: got %s", got)
	}
}
