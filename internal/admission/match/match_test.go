package match_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/admission/match"
	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/resource"
)

func rule(operation, group, version, resources string) admissionregistrationv1.NamedRuleWithOperations {
	return match.Named([]admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationType(operation)},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resources}},
	}})[0]
}

func TestRulesMatchWrites(t *testing.T) {
	const deployment = "Deployment: {metadata: {name: d, namespace: default, labels: {a: b}}}"
	world := admissiontest.New(t, "Namespace: {metadata: {name: default, labels: {team: x}}}")
	scoped := func(s admissionregistrationv1.ScopeType) match.Spec {
		r := rule("*", "*", "*", "*")
		r.Scope = &s
		return match.Spec{Rules: []admissionregistrationv1.NamedRuleWithOperations{r}}
	}
	name := rule("*", "*", "*", "*")
	name.ResourceNames = []string{"other"}
	for title, q := range map[string]struct {
		spec match.Spec
		sub  string
		want string // version that matches; empty: none
	}{
		"everything":                   {match.Spec{Rules: []admissionregistrationv1.NamedRuleWithOperations{rule("*", "*", "*", "*")}}, "", "apps/v1"},
		"no rules":                     {match.Spec{}, "", ""},
		"no rules where none are due":  {match.Spec{Unruled: true}, "", "apps/v1"},
		"another operation":            {match.Spec{Rules: []admissionregistrationv1.NamedRuleWithOperations{rule("DELETE", "*", "*", "*")}}, "", ""},
		"another resource":             {match.Spec{Rules: []admissionregistrationv1.NamedRuleWithOperations{rule("*", "*", "*", "pods")}}, "", ""},
		"the version":                  {match.Spec{Rules: []admissionregistrationv1.NamedRuleWithOperations{rule("CREATE", "apps", "v1", "deployments")}}, "", "apps/v1"},
		"another version":              {match.Spec{Rules: []admissionregistrationv1.NamedRuleWithOperations{rule("*", "extensions", "v1beta1", "deployments")}}, "", ""},
		"an equivalent version":        {match.Spec{Rules: []admissionregistrationv1.NamedRuleWithOperations{rule("*", "extensions", "v1beta1", "deployments")}, Policy: ptr.To(admissionregistrationv1.Equivalent)}, "", "extensions/v1beta1"},
		"not subresources":             {match.Spec{Rules: []admissionregistrationv1.NamedRuleWithOperations{rule("*", "*", "*", "*")}}, "status", ""},
		"all subresources":             {match.Spec{Rules: []admissionregistrationv1.NamedRuleWithOperations{rule("*", "*", "*", "*/*")}}, "status", "apps/v1"},
		"a subresource":                {match.Spec{Rules: []admissionregistrationv1.NamedRuleWithOperations{rule("*", "*", "*", "deployments/status")}}, "status", "apps/v1"},
		"what is in namespaces":        {scoped(admissionregistrationv1.NamespacedScope), "", "apps/v1"},
		"what is in none":              {scoped(admissionregistrationv1.ClusterScope), "", ""},
		"another name":                 {match.Spec{Rules: []admissionregistrationv1.NamedRuleWithOperations{name}}, "", ""},
		"what is not left out by name": {match.Spec{Unruled: true, Exclude: []admissionregistrationv1.NamedRuleWithOperations{name}}, "", "apps/v1"},
		"what is left out":             {match.Spec{Unruled: true, Exclude: []admissionregistrationv1.NamedRuleWithOperations{rule("*", "*", "*", "*")}}, "", ""},
		"labels":                       {match.Spec{Unruled: true, Object: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}, "", "apps/v1"},
		"other labels":                 {match.Spec{Unruled: true, Object: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "c"}}}, "", ""},
		"labels of the namespace":      {match.Spec{Unruled: true, Namespace: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}}, "", "apps/v1"},
		"other labels of it":           {match.Spec{Unruled: true, Namespace: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "y"}}}, "", ""},
	} {
		t.Run(title, func(t *testing.T) {
			c, err := match.Compile(q.spec)
			if err != nil {
				t.Fatal(err)
			}
			a := admissiontest.Request(t, deployment, "")
			a.Sub = q.sub
			v, err := c.Matches(t.Context(), match.New(world.Options(), a))
			got := ""
			if v != nil {
				got = v.Resource.GroupVersion().String()
			}
			if err != nil || got != q.want {
				t.Errorf("got %q, %v, want %q", got, err, q.want)
			}
		})
	}
}

func TestNamespaceThatIsNotThereIsAnError(t *testing.T) {
	c, err := match.Compile(match.Spec{Unruled: true, Namespace: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	target := match.New(admissiontest.New(t).Options(), admissiontest.Request(t, "Pod: {metadata: {name: p, namespace: gone}}", ""))
	if _, err := c.Matches(t.Context(), target); err == nil || err.Error() != `namespaces "gone" not found` {
		t.Errorf("got %v, want that it is not found", err)
	}
}

func TestObjectsAreShownAtTheVersionThatIsAskedFor(t *testing.T) {
	a := admissiontest.Request(t, "Deployment: {metadata: {name: d, namespace: default}, spec: {replicas: 2}}", "")
	a.GVK = schema.GroupVersionKind{Group: "extensions", Version: "v1beta1", Kind: "Deployment"}
	target := match.New(admissiontest.New(t).Options(), a)
	is := target.Requested()
	form, err := target.At(t.Context(), is)
	if err != nil {
		t.Fatal(err)
	}
	if got := form.Object.GetObjectKind().GroupVersionKind(); got != a.GVK || form.Old != nil {
		t.Errorf("got %v and old %v, want %v and none", got, form.Old, a.GVK)
	}
	if r := target.Request(is); r.Name != "d" || r.Namespace != "default" || r.Kind.Group != "extensions" || r.Resource.Resource != "deployments" || r.UserInfo.Username != "alice" {
		t.Errorf("got request %+v", r)
	}
	for _, v := range target.Equivalents() {
		form, err := target.At(t.Context(), v)
		if err != nil || form.Object.GetObjectKind().GroupVersionKind() != v.Kind {
			t.Errorf("%v: got %v, %v", v.Kind, form, err)
		}
	}
	if len(target.Equivalents()) == 0 {
		t.Error("got no equivalent versions, want apps/v1 and others")
	}
}

func TestWhatIsReplacedStaysInItsNamespace(t *testing.T) {
	a := admissiontest.Request(t, "ConfigMap: {metadata: {name: m, namespace: default}}", "")
	target := match.New(admissiontest.New(t).Options(), a)
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default"}, Data: map[string]string{"a": "b"}}
	if err := target.Replace(target.Requested(), made); err != nil || a.Object.(*corev1.ConfigMap).Data["a"] != "b" {
		t.Errorf("got %v, %v, want the object replaced", a.Object, err)
	}
	elsewhere := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "other"}}
	if err := target.Replace(target.Requested(), elsewhere); err == nil {
		t.Error("an object went to another namespace")
	}
}

// gadgets is a kind that is known at run time only, in two versions that are named alike.
func gadgets() *resource.Def {
	return custom.Define(custom.Kind{
		Names:    resource.Names{Group: "example.com", Version: "v1", Kind: "Gadget", Plural: "gadgets", Namespaced: true},
		Versions: []custom.Version{{Name: "v1", Served: true}, {Name: "v2", Served: true}, {Name: "v3"}},
	}).Def
}

func TestKindsThatAreKnownAtRunTimeAreShownAtTheirVersions(t *testing.T) {
	def := gadgets()
	obj, err := custom.FromTree(map[string]any{
		"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": "g", "namespace": "default"}, "spec": map[string]any{"size": int64(1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &admission.Attributes{Operation: admission.Create, Def: def, GVK: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}, Namespace: "default", Object: obj}
	target := match.New(admissiontest.New(t).Options(), a)
	c, err := match.Compile(match.Spec{Rules: []admissionregistrationv1.NamedRuleWithOperations{rule("*", "example.com", "v2", "gadgets")}, Policy: ptr.To(admissionregistrationv1.Equivalent)})
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.Matches(t.Context(), target)
	if err != nil || v == nil || len(target.Equivalents()) != 1 {
		t.Fatalf("got %v, %v and %d equivalents, want v2, the only other one that is served", v, err, len(target.Equivalents()))
	}
	form, err := target.At(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	shown := form.Object.(*custom.Object)
	if got := shown.Tree(); got["apiVersion"] != "example.com/v2" || got["kind"] != "Gadget" {
		t.Errorf("got %v, want it at v2", got)
	}
	tree := shown.Tree()
	tree["spec"] = map[string]any{"size": int64(2)}
	made, err := custom.FromTree(tree)
	if err == nil {
		err = target.Replace(v, made)
	}
	if err != nil {
		t.Fatal(err)
	}
	now := a.Object.(*custom.Object)
	if size := now.Body()["spec"].(map[string]any)["size"]; now.Version() != "v1" || size != int64(2) {
		t.Errorf("got version %s and size %v, want v1 and 2", now.Version(), size)
	}
}
