package plugins

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/admission/admissiontest"
)

func TestNewNodeIsTaintedUntilItIsReady(t *testing.T) {
	c := only(t, admissiontest.New(t).Options(), "TaintNodesByCondition")
	for _, q := range []struct{ spec, want string }{
		{"{}", "node.kubernetes.io/not-ready:NoSchedule"},
		{"{taints: [{key: mine, effect: NoExecute}]}", "mine:NoExecute node.kubernetes.io/not-ready:NoSchedule"},
		{"{taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}]}", "node.kubernetes.io/not-ready:NoSchedule"},
	} {
		a := admissiontest.Request(t, "Node: {metadata: {name: n1}, spec: "+q.spec+"}", "")
		if got := admissiontest.Run(t, c, a); got != "" {
			t.Fatal(got)
		}
		var got []string
		for _, taint := range a.Object.(*corev1.Node).Spec.Taints {
			got = append(got, taint.Key+":"+string(taint.Effect))
		}
		if strings.Join(got, " ") != q.want {
			t.Errorf("%s: got %s, want %s", q.spec, got, q.want)
		}
	}
}

func TestExternalAddressesAreDenied(t *testing.T) {
	c := only(t, admissiontest.New(t).Options(), "DenyServiceExternalIPs")
	svc := func(ips string) string {
		return "Service: {metadata: {namespace: team, name: web}, spec: {externalIPs: [" + ips + "]}}"
	}
	const want = `services "web" is forbidden: Use of external IPs is denied by admission control.`
	for _, q := range []struct{ now, old, want string }{
		{svc(""), "", ""}, {svc("192.0.2.1"), "", want}, {svc("192.0.2.1"), svc("192.0.2.1, 192.0.2.2"), ""}, {svc("192.0.2.1, 192.0.2.3"), svc("192.0.2.1"), want},
	} {
		if got := admissiontest.Run(t, c, admissiontest.Request(t, q.now, q.old)); got != q.want {
			t.Errorf("%s over %s: got %s, want %s", q.now, q.old, got, q.want)
		}
	}
}
