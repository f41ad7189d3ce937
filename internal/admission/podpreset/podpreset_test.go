package podpreset

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/trace"
)

// The preset of the documents.
const database = `PodPreset: {metadata: {namespace: team, name: allow-database, resourceVersion: "7"}, spec: {selector: {matchLabels: {role: frontend}},
	env: [{name: DB_PORT, value: "6379"}], envFrom: [{configMapRef: {name: etcd-env-config}}],
	volumeMounts: [{mountPath: /cache, name: cache-volume}], volumes: [{name: cache-volume, emptyDir: {}}]}}`

func pod(labels, spec string) string {
	return "Pod: {metadata: {namespace: team, name: web, labels: {" + labels + "}}, spec: {" + spec + "}}"
}

// told is the events of a test.
type told []string

func (l *told) Event(obj resource.Object, kind, reason, message string) {
	*l = append(*l, fmt.Sprintf("%s %s %s: %s", obj.GetName(), kind, reason, message))
}

func TestPodsGetWhatTheirPresetsHave(t *testing.T) {
	w := admissiontest.New(t, database)
	c := admission.NewChain(New(w.Options()))
	a := admissiontest.Request(t, pod("role: frontend", `initContainers: [{name: i}],
		containers: [{name: a, env: [{name: OWN, value: x}]}, {name: b, env: [{name: DB_PORT, value: "6379"}], volumeMounts: [{name: own, mountPath: /own}]}],
		volumes: [{name: own, emptyDir: {}}]`), "")
	if got := admissiontest.Run(t, c, a); got != "" {
		t.Fatal(got)
	}
	p := a.Object.(*corev1.Pod)
	trace.Proves(t, "PPS-004", "PPS-005", "PPS-010", "PPS-011", "PPS-012")
	const want = `containers:
- env:
  - name: OWN
    value: x
  - name: DB_PORT
    value: "6379"
  envFrom:
  - configMapRef:
      name: etcd-env-config
  name: a
  resources: {}
  volumeMounts:
  - mountPath: /cache
    name: cache-volume
- env:
  - name: DB_PORT
    value: "6379"
  envFrom:
  - configMapRef:
      name: etcd-env-config
  name: b
  resources: {}
  volumeMounts:
  - mountPath: /own
    name: own
  - mountPath: /cache
    name: cache-volume
initContainers:
- name: i
  resources: {}
volumes:
- emptyDir: {}
  name: own
- emptyDir: {}
  name: cache-volume
`
	if got := admissiontest.Spec(t, p); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	trace.Proves(t, "PPS-008")
	if got := fmt.Sprint(p.Annotations); got != "map[podpreset.admission.kubernetes.io/podpreset-allow-database:7]" {
		t.Errorf("annotations: got %s", got)
	}
}

func TestPresetsAreForPodsThatTheySelect(t *testing.T) {
	other := strings.NewReplacer("allow-database", "second", "frontend", "backend").Replace(database)
	all := `PodPreset: {metadata: {namespace: team, name: all}, spec: {env: [{name: ALL, value: "1"}]}}`
	elsewhere := strings.Replace(all, "team", "others", 1)
	for _, q := range []struct {
		name    string
		presets []string
		pod     string
		want    string
	}{
		{"other labels", []string{database}, pod("role: backend", ""), ""},
		{"no labels", []string{database}, pod("", ""), ""},
		{"no presets", nil, pod("role: frontend", ""), ""},
		{"presets of another namespace", []string{elsewhere}, pod("role: frontend", ""), ""},
		{"two presets for two pods", []string{database, other}, pod("role: backend", ""), "second"},
		{"several presets for one pod", []string{database, all}, pod("role: frontend", ""), "all allow-database"},
		{"a pod that wants none", []string{database}, "Pod: {metadata: {namespace: team, name: web, labels: {role: frontend}, annotations: {podpreset.admission.kubernetes.io/exclude: 'true'}}}", ""},
		{"a pod that does not want none", []string{database}, "Pod: {metadata: {namespace: team, name: web, labels: {role: frontend}, annotations: {podpreset.admission.kubernetes.io/exclude: 'false'}}}", "allow-database"},
		{"a mirror pod", []string{database}, "Pod: {metadata: {namespace: team, name: web, labels: {role: frontend}, annotations: {kubernetes.io/config.mirror: x}}}", ""},
	} {
		a := admissiontest.Request(t, q.pod, "")
		if got := admissiontest.Run(t, admission.NewChain(New(admissiontest.New(t, q.presets...).Options())), a); got != "" {
			t.Errorf("%s: %s", q.name, got)
		}
		var got []string
		for _, name := range []string{"all", "allow-database", "second"} {
			if _, ok := a.Object.(*corev1.Pod).Annotations["podpreset.admission.kubernetes.io/podpreset-"+name]; ok {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != q.want {
			t.Errorf("%s: got %v, want %s", q.name, got, q.want)
		}
	}
	trace.Proves(t, "PPS-002", "PPS-009", "PPS-013", "PPS-018")
}

func TestPodsAreLeftAloneWherePresetsContradict(t *testing.T) {
	mount := strings.Replace(database, "allow-database", "second", 1)
	mount = strings.NewReplacer("cache-volume", "other-volume", "DB_PORT", "OTHER").Replace(mount)
	for _, q := range []struct {
		name    string
		presets []string
		spec    string
		want    string
	}{
		{"an environment variable", []string{database}, `containers: [{name: a, env: [{name: DB_PORT, value: "1"}]}]`,
			`merging env for allow-database has a conflict on DB_PORT: {"name":"DB_PORT","value":"6379"} does not match {"name":"DB_PORT","value":"1"} in container`},
		{"a volume", []string{database}, `containers: [{name: a}], volumes: [{name: cache-volume, hostPath: {path: /x}}]`,
			`merging volumes for allow-database has a conflict on cache-volume: {"name":"cache-volume","emptyDir":{}} does not match {"name":"cache-volume","hostPath":{"path":"/x"}} in container`},
		{"a mounted volume", []string{database}, `containers: [{name: a, volumeMounts: [{name: cache-volume, mountPath: /other}]}]`,
			`merging volume mounts for allow-database has a conflict on cache-volume: {"name":"cache-volume","mountPath":"/cache"} does not match {"name":"cache-volume","mountPath":"/other"} in container`},
		{"a mount path", []string{database}, `containers: [{name: a}, {name: b, volumeMounts: [{name: x, mountPath: /cache}]}]`,
			`merging volume mounts for allow-database has a conflict on mount path /cache: {"name":"cache-volume","mountPath":"/cache"} does not match {"name":"x","mountPath":"/cache"} in container`},
		{"two presets", []string{database, mount}, `containers: [{name: a}]`,
			`merging volume mounts for second has a conflict on mount path /cache: {"name":"other-volume","mountPath":"/cache"} does not match {"name":"cache-volume","mountPath":"/cache"} in container`},
	} {
		var l told
		o := admissiontest.New(t, q.presets...).Options()
		o.Events = &l
		a, before := admissiontest.Request(t, pod("role: frontend", q.spec), ""), admissiontest.Request(t, pod("role: frontend", q.spec), "")
		if got := admissiontest.Run(t, admission.NewChain(New(o)), a); got != "" {
			t.Errorf("%s: %s", q.name, got)
		}
		p := a.Object.(*corev1.Pod)
		if got, want := admissiontest.Spec(t, p), admissiontest.Spec(t, before.Object.(*corev1.Pod)); got != want || len(p.Annotations) > 0 {
			t.Errorf("%s: got annotations %v and\n%s\nwant none and\n%s", q.name, p.Annotations, got, want)
		}
		if want := "web Warning PodPresetConflict: " + q.want; len(l) != 1 || l[0] != want {
			t.Errorf("%s: got events %q, want %q", q.name, l, want)
		}
	}
	trace.Proves(t, "PPS-006", "PPS-007")
}
