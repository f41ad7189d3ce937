package plugins

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
)

// tolerated are the tolerations of a pod in short: key=value:effect.
func tolerated(pod *corev1.Pod) string {
	var out []string
	for _, t := range pod.Spec.Tolerations {
		s := t.Key
		if t.Operator != corev1.TolerationOpExists {
			s += "=" + t.Value
		}
		if s += ":" + string(t.Effect); t.TolerationSeconds != nil {
			s += fmt.Sprint(" ", *t.TolerationSeconds)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func TestPodsTolerateTaintsOfTheirExtendedResources(t *testing.T) {
	c := only(t, admissiontest.New(t).Options(), "ExtendedResourceToleration")
	const device = "{name: a, resources: {requests: {cpu: 1, example.com/b: 1, example.com/a: 1}}}"
	for _, q := range []struct{ spec, want string }{
		{"containers: [{name: a, resources: {requests: {cpu: 1, hugepages-2Mi: 2Mi}}}]", ""},
		{"containers: [" + device + "]", "example.com/a:NoSchedule, example.com/b:NoSchedule"},
		{"initContainers: [" + device + "], tolerations: [{key: example.com/b, operator: Exists, effect: NoSchedule}]", "example.com/b:NoSchedule, example.com/a:NoSchedule"},
	} {
		a := admissiontest.Request(t, "Pod: {metadata: {namespace: team, name: x}, spec: {"+q.spec+"}}", "")
		if refused := admissiontest.Run(t, c, a); refused != "" || tolerated(a.Object.(*corev1.Pod)) != q.want {
			t.Errorf("%s: got %q, %s, want %s", q.spec, refused, tolerated(a.Object.(*corev1.Pod)), q.want)
		}
	}
}

func TestTolerationsAreThoseOfTheNamespace(t *testing.T) {
	const config = `apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1
kind: Configuration
default: [{key: all, operator: Exists}]
whitelist: [{key: all, operator: Exists}, {key: some, operator: Exists}, {key: node.kubernetes.io/memory-pressure, operator: Exists}]`
	w := admissiontest.New(t, "Namespace: {metadata: {name: plain}}",
		`Namespace: {metadata: {name: team, annotations: {scheduler.alpha.kubernetes.io/defaultTolerations: '[{"key":"team","value":"a","effect":"NoSchedule"}]',
			scheduler.alpha.kubernetes.io/tolerationsWhitelist: '[{"key":"team","operator":"Exists"},{"key":"short","operator":"Exists","effect":"NoExecute","tolerationSeconds":10}]'}}}`,
		`Namespace: {metadata: {name: none, annotations: {scheduler.alpha.kubernetes.io/defaultTolerations: '[]', scheduler.alpha.kubernetes.io/tolerationsWhitelist: '[]'}}}`,
		`Namespace: {metadata: {name: bad, annotations: {scheduler.alpha.kubernetes.io/defaultTolerations: 'x'}}}`)
	o := w.Options()
	o.Config = admission.Configurations{"PodTolerationRestriction": []byte(config)}
	c := only(t, o, "PodTolerationRestriction")
	const refused = `pods "x" is forbidden: pod tolerations (possibly merged with namespace default tolerations) conflict with its `
	for _, q := range []struct{ namespace, spec, want, refused string }{
		{"plain", "", "all:", ""},
		{"plain", "tolerations: [{key: all, operator: Exists, effect: NoSchedule}, {key: some}]", "all:, some=:", ""},
		{"plain", "tolerations: [{key: other}]", "", refused + "cluster whitelist"},
		{"plain", "containers: [{name: a, resources: {requests: {cpu: 1}}}]", "all:, node.kubernetes.io/memory-pressure:NoSchedule", ""},
		{"team", "", "team=a:NoSchedule", ""},
		{"team", "tolerations: [{key: team, operator: Exists}]", "team:", ""},
		{"team", "tolerations: [{key: short, operator: Exists, effect: NoExecute, tolerationSeconds: 9}]", "team=a:NoSchedule, short:NoExecute 9", ""},
		{"team", "tolerations: [{key: short, operator: Exists, effect: NoExecute, tolerationSeconds: 11}]", "", refused + "namespace whitelist"},
		{"team", "tolerations: [{operator: Exists}]", "", refused + "namespace whitelist"},
		{"none", "tolerations: [{key: other}]", "other=:", ""},
		{"bad", "", "", `pods "x" is forbidden: annotation scheduler.alpha.kubernetes.io/defaultTolerations of namespace bad: invalid character 'x' looking for beginning of value`},
	} {
		a := admissiontest.Request(t, "Pod: {metadata: {namespace: "+q.namespace+", name: x}, spec: {"+q.spec+"}}", "")
		got := admissiontest.Run(t, c, a)
		if got != q.refused || got == "" && tolerated(a.Object.(*corev1.Pod)) != q.want {
			t.Errorf("%s, %s: got %q, %s; want %q, %s", q.namespace, q.spec, got, tolerated(a.Object.(*corev1.Pod)), q.refused, q.want)
		}
	}
}
