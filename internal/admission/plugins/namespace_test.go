package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
)

func TestNamespaceLifecycle(t *testing.T) {
	w := admissiontest.New(t, "Namespace: {metadata: {name: team}, status: {phase: Active}}", "Namespace: {metadata: {name: going}, status: {phase: Terminating}}")
	c := only(t, w.Options(), "NamespaceLifecycle")
	for _, q := range []struct{ name, now, old, want string }{
		{"in a namespace", "ConfigMap: {metadata: {namespace: team, name: x}}", "", ""},
		{"in none that is there", "ConfigMap: {metadata: {namespace: gone, name: x}}", "", `namespaces "gone" not found`},
		{"in one that is going", "ConfigMap: {metadata: {namespace: going, name: x}}", "", `configmaps "x" is forbidden: unable to create new content in namespace going because it is being terminated`},
		{"by a generated name", "Pod: {metadata: {namespace: going, generateName: web-}}", "", `pods "web-" is forbidden: unable to create new content in namespace going because it is being terminated`},
		{"update in one that is going", "ConfigMap: {metadata: {namespace: going, name: x}}", "ConfigMap: {metadata: {namespace: going, name: x}}", ""},
		{"delete in one that is gone", "", "ConfigMap: {metadata: {namespace: gone, name: x}}", ""},
		{"without a namespace", "Node: {metadata: {name: n1}}", "", ""},
		{"a namespace itself", "Namespace: {metadata: {name: new}}", "", ""},
		{"delete of a namespace", "", "Namespace: {metadata: {name: team}}", ""},
		{"delete of default", "", "Namespace: {metadata: {name: default}}", `namespaces "default" is forbidden: this namespace may not be deleted`},
		{"delete of kube-node-lease", "", "Namespace: {metadata: {name: kube-node-lease}}", `namespaces "kube-node-lease" is forbidden: this namespace may not be deleted`},
		{"a question about access", "LocalSubjectAccessReview: {metadata: {namespace: gone}}", "", ""},
	} {
		if got := admissiontest.Run(t, c, admissiontest.Request(t, q.now, q.old)); got != q.want {
			t.Errorf("%s: got %s, want %s", q.name, got, q.want)
		}
	}
	err := c.Mutate(t.Context(), admissiontest.Request(t, "ConfigMap: {metadata: {namespace: going, name: x}}", ""))
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("error lacks the cause %s: %v", corev1.NamespaceTerminatingCause, err)
	}
}

func TestNamespacesMustExistForEverythingIfAskedFor(t *testing.T) {
	w := admissiontest.New(t, "Namespace: {metadata: {name: team}}")
	c := only(t, w.Options(), "NamespaceExists")
	for _, q := range []struct{ name, now, old, want string }{
		{"in a namespace", "ConfigMap: {metadata: {namespace: team, name: x}}", "", ""},
		{"deletion in none that is there", "", "ConfigMap: {metadata: {namespace: gone, name: x}}", `namespaces "gone" not found`},
		{"a namespace itself", "Namespace: {metadata: {name: new}}", "", ""},
		{"without a namespace", "Node: {metadata: {name: n1}}", "", ""},
	} {
		if got := admissiontest.Run(t, c, admissiontest.Request(t, q.now, q.old)); got != q.want {
			t.Errorf("%s: got %s, want %s", q.name, got, q.want)
		}
	}
}

func TestEverythingIsDeniedIfAskedFor(t *testing.T) {
	o := admissiontest.New(t).Options()
	const want = `configmaps "x" is forbidden: admission control is denying all modifications`
	a := func() *admission.Attributes {
		return admissiontest.Request(t, "ConfigMap: {metadata: {namespace: team, name: x}}", "")
	}
	if got := admissiontest.Run(t, only(t, o, "AlwaysDeny"), a()); got != want {
		t.Errorf("AlwaysDeny: got %s, want %s", got, want)
	}
	if got := admissiontest.Run(t, only(t, o, "AlwaysAdmit"), a()); got != "" {
		t.Errorf("AlwaysAdmit: got %s", got)
	}
}
