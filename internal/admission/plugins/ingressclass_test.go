package plugins

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
)

func TestIngressesWithoutAClassGetTheNewestDefault(t *testing.T) {
	const marked = "annotations: {ingressclass.kubernetes.io/is-default-class: 'true'}"
	classes := []string{
		"IngressClass: {metadata: {name: old, creationTimestamp: '2026-01-01T00:00:00Z', " + marked + "}, spec: {controller: example.com/a}}",
		"IngressClass: {metadata: {name: new, creationTimestamp: '2026-01-02T00:00:00Z', " + marked + "}, spec: {controller: example.com/a}}",
		"IngressClass: {metadata: {name: newer, creationTimestamp: '2026-01-02T00:00:00Z', " + marked + "}, spec: {controller: example.com/a}}",
		"IngressClass: {metadata: {name: newest, creationTimestamp: '2026-01-03T00:00:00Z', annotations: {ingressclass.kubernetes.io/is-default-class: 'false'}}, spec: {controller: example.com/a}}",
	}
	for _, q := range []struct {
		name    string
		classes []string
		ingress string
		want    string
	}{
		{"no class", classes, "metadata: {namespace: team, name: i}", "new"},
		{"class of its own", classes, "metadata: {namespace: team, name: i}, spec: {ingressClassName: old}", "old"},
		{"no class wanted", classes, "metadata: {namespace: team, name: i}, spec: {ingressClassName: ''}", ""},
		{"class by annotation", classes, "metadata: {namespace: team, name: i, annotations: {kubernetes.io/ingress.class: nginx}}", "unset"},
		{"no default", classes[3:], "metadata: {namespace: team, name: i}", "unset"},
	} {
		w := admissiontest.New(t, q.classes...)
		a := admissiontest.Request(t, "Ingress: {"+q.ingress+"}", "")
		if refused := admissiontest.Run(t, admission.NewChain(defaultIngressClass(w.Options())), a); refused != "" {
			t.Errorf("%s: refused: %s", q.name, refused)
		}
		if got := ptr.Deref(a.Object.(*networkingv1.Ingress).Spec.IngressClassName, "unset"); got != q.want {
			t.Errorf("%s: got class %s, want %s", q.name, got, q.want)
		}
	}
}
