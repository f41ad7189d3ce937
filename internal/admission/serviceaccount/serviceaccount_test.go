package serviceaccount

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/trace"
)

func TestPodGetsItsServiceAccountsToken(t *testing.T) {
	w := admissiontest.New(t, "ServiceAccount: {metadata: {namespace: team, name: default}, imagePullSecrets: [{name: registry}]}")
	c := admission.NewChain(New(w.Options()))
	a := admissiontest.Request(t, `Pod: {metadata: {namespace: team, name: x}, spec: {
		initContainers: [{name: i}],
		containers: [{name: a}, {name: b, volumeMounts: [{name: own, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}]}}`, "")
	if got := admissiontest.Run(t, c, a); got != "" {
		t.Fatal(got)
	}
	pod := a.Object.(*corev1.Pod)
	if len(pod.Spec.Volumes) != 1 || !strings.HasPrefix(pod.Spec.Volumes[0].Name, "kube-api-access-") || len(pod.Spec.Volumes[0].Name) != len("kube-api-access-")+5 {
		t.Fatalf("volumes: got %+v", pod.Spec.Volumes)
	}
	got := strings.ReplaceAll(admissiontest.Spec(t, pod), pod.Spec.Volumes[0].Name, "kube-api-access-abcde")
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
	before := admissiontest.Spec(t, pod)
	if got := admissiontest.Run(t, c, a); got != "" || admissiontest.Spec(t, pod) != before {
		t.Errorf("a second time: %s\n%s", got, admissiontest.Spec(t, pod))
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
		w := admissiontest.New(t, "ServiceAccount: {metadata: {namespace: team, name: robot}, "+says(q.account)+"}")
		a := admissiontest.Request(t, "Pod: {metadata: {namespace: team, name: x}, spec: {serviceAccountName: robot, containers: [{name: a}], "+says(q.pod)+"}}", "")
		if got := admissiontest.Run(t, admission.NewChain(New(w.Options())), a); got != "" {
			t.Fatal(got)
		}
		pod := a.Object.(*corev1.Pod)
		if got := len(pod.Spec.Volumes) == 1 && len(pod.Spec.Containers[0].VolumeMounts) == 1; got != q.want {
			t.Errorf("account says %q, pod says %q: mounted %t, want %t", q.account, q.pod, got, q.want)
		}
	}
}

func TestPodsThatServiceAccountRefuses(t *testing.T) {
	w := admissiontest.New(t, "ServiceAccount: {metadata: {namespace: team, name: default}}")
	c := admission.NewChain(New(w.Options()))
	const mirror = `Pod: {metadata: {namespace: team, name: x, annotations: {kubernetes.io/config.mirror: abc}}, spec: `
	for _, q := range []struct{ pod, want string }{
		{"Pod: {metadata: {namespace: team, generateName: web-}, spec: {serviceAccountName: gone}}", `pods "web-" is forbidden: error looking up service account team/gone: serviceaccount "gone" not found`},
		{mirror + "{}}", ""},
		{mirror + "{serviceAccountName: default}}", `pods "x" is forbidden: a mirror pod may not reference service accounts`},
		{mirror + "{volumes: [{name: a, secret: {secretName: s}}]}}", `pods "x" is forbidden: a mirror pod may not reference secrets`},
		{mirror + "{containers: [{env: [{valueFrom: {secretKeyRef: {name: s}}}]}]}}", `pods "x" is forbidden: a mirror pod may not reference secrets`},
		{mirror + "{volumes: [{name: a, projected: {sources: [{serviceAccountToken: {}}]}}]}}", `pods "x" is forbidden: a mirror pod may not use ServiceAccountToken volume projections`},
	} {
		if got := admissiontest.Run(t, c, admissiontest.Request(t, q.pod, "")); got != q.want {
			t.Errorf("%s: got %s, want %s", q.pod, got, q.want)
		}
	}
}

func TestPodWaitsForTheDefaultServiceAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := admissiontest.New(t)
		c := admission.NewChain(New(w.Options()))
		time.AfterFunc(300*time.Millisecond, func() { w.Set(t, "ServiceAccount: {metadata: {namespace: team, name: default}}") })
		start := time.Now()
		if got := admissiontest.Run(t, c, admissiontest.Request(t, "Pod: {metadata: {namespace: team, name: x}}", "")); got != "" || time.Since(start) != 300*time.Millisecond {
			t.Errorf("account made a moment later: got %q after %s", got, time.Since(start))
		}
		start = time.Now()
		want := `pods "x" is forbidden: error looking up service account other/default: serviceaccount "default" not found`
		if got := admissiontest.Run(t, c, admissiontest.Request(t, "Pod: {metadata: {namespace: other, name: x}}", "")); got != want || time.Since(start) != time.Second {
			t.Errorf("account never made: got %q after %s, want %q after a second", got, time.Since(start), want)
		}
	})
}
