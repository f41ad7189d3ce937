package plugins

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
)

// only is a chain of one plugin.
func only(t testing.TB, o *admission.Options, name string) *admission.Chain {
	t.Helper()
	for _, e := range entries(o) {
		if e.Name == name {
			return admission.NewChain(e.Plugin)
		}
	}
	t.Fatalf("no plugin %s", name)
	return nil
}

func TestPluginsAreOnAndOffAsAsked(t *testing.T) {
	w := admissiontest.New(t)
	o := w.Options()
	byDefault, err := New(*o)
	if err != nil {
		t.Fatal(err)
	}
	want := "NamespaceLifecycle LimitRanger ServiceAccount NodeRestriction TaintNodesByCondition PodSecurity Priority DefaultTolerationSeconds DefaultStorageClass StorageObjectInUseProtection PodGroupProtection PersistentVolumeClaimResize RuntimeClass " +
		"CertificateApproval CertificateSigning ClusterTrustBundleAttest CertificateSubjectRestriction DefaultIngressClass PodTopologyLabels NodeDeclaredFeatureValidator PodResizeValidator RBACEscalation ResourceClaimAuthorization MutatingAdmissionPolicy MutatingAdmissionWebhook ValidatingAdmissionPolicy ValidatingAdmissionWebhook ResourceQuota"
	if got := strings.Join(byDefault.Names(), " "); got != want {
		t.Errorf("by default: got %s, want %s", got, want)
	}
	o.Enable, o.Disable = []string{"AlwaysPullImages"}, []string{"Priority"}
	asked, err := New(*o)
	if err != nil {
		t.Fatal(err)
	}
	if got := asked.Names(); !slices.Contains(got, "AlwaysPullImages") || slices.Contains(got, "Priority") {
		t.Errorf("as asked: got %s", got)
	}
	o.Enable = []string{"EventRateLimit"}
	if _, err := New(*o); err == nil || err.Error() != "configuration of admission plugin EventRateLimit: limits: Required value: there must be at least one" {
		t.Errorf("plugin without the configuration that it needs: got %v", err)
	}
	o.Enable, o.Config = nil, admission.Configurations{"Other": nil}
	if _, err := New(*o); err == nil || !strings.Contains(err.Error(), `"Other"`) {
		t.Errorf("configuration of an unknown plugin: got %v", err)
	}
	o.Config, o.Enable = nil, []string{"Nonsense"}
	if _, err := New(*o); err == nil || !strings.Contains(err.Error(), `"Nonsense"`) {
		t.Errorf("unknown plugin: got %v", err)
	}
}

func TestCacheThatIsBehindIsWaitedFor(t *testing.T) {
	w := admissiontest.New(t)
	o := w.Options()
	asked := 0
	o.Fresh = func(context.Context) error {
		asked++
		w.Set(t, "Namespace: {metadata: {name: team}}")
		return nil
	}
	c := only(t, o, "NamespaceLifecycle")
	if got := admissiontest.Run(t, c, admissiontest.Request(t, "ConfigMap: {metadata: {namespace: team, name: x}}", "")); got != "" || asked != 1 {
		t.Errorf("got %q, asked %d times; want success after one wait", got, asked)
	}
	o.Fresh = func(context.Context) error { return errors.New("store is away") }
	c = only(t, o, "NamespaceLifecycle")
	err := c.Mutate(t.Context(), admissiontest.Request(t, "ConfigMap: {metadata: {namespace: other, name: x}}", ""))
	if err == nil || !strings.Contains(err.Error(), "store is away") || apierrors.IsNotFound(err) {
		t.Errorf("store is away: got %v", err)
	}
}

func TestObjectsOfAllKindsPassTheWholeChain(t *testing.T) {
	w := admissiontest.New(t, "Namespace: {metadata: {name: team}}", "ServiceAccount: {metadata: {namespace: team, name: default}}")
	c, err := New(*w.Options())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range api.All() {
		obj := d.New()
		obj.SetName("x")
		a := &admission.Attributes{Operation: admission.Create, Def: d, Object: obj, Name: "x", User: &user.DefaultInfo{Name: "alice"}}
		if d.Namespaced {
			obj.SetNamespace("team")
			a.Namespace = "team"
		}
		if got := admissiontest.Run(t, c, a); got != "" {
			t.Errorf("%s: %s", d, got)
		}
		a.Operation, a.Old = admission.Update, obj.DeepCopyObject().(resource.Object)
		if got := admissiontest.Run(t, c, a); got != "" {
			t.Errorf("update of %s: %s", d, got)
		}
	}
	if w.Caches[core.Pods.Def].Len() != 0 {
		t.Error("admission wrote something")
	}
}

func BenchmarkPod(b *testing.B) {
	w := admissiontest.New(b, "Namespace: {metadata: {name: team}}", "ServiceAccount: {metadata: {namespace: team, name: default}}")
	c, err := New(*w.Options())
	if err != nil {
		b.Fatal(err)
	}
	a := admissiontest.Request(b, "Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a}]}}", "")
	pod := a.Object.(*corev1.Pod)
	b.ReportAllocs()
	for b.Loop() {
		p := *pod
		p.Spec.Containers = slices.Clone(pod.Spec.Containers)
		a.Object = &p
		if got := admissiontest.Run(b, c, a); got != "" {
			b.Fatal(got)
		}
	}
}
