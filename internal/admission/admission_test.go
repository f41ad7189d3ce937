package admission

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// world is the caches of all resources.
type world struct {
	caches map[*resource.Def]*cache.Cache
	rev    int64
}

// newWorld holds objects written as "Kind: YAML".
func newWorld(t testing.TB, objs ...string) *world {
	t.Helper()
	w := &world{caches: map[*resource.Def]*cache.Cache{}, rev: 1}
	p := &cache.Progress{}
	for _, d := range api.All() {
		w.caches[d] = cache.New(d, p)
		w.caches[d].Replace(nil, 1)
	}
	for _, text := range objs {
		w.set(t, text)
	}
	return w
}

// parse reads "Kind: YAML", where the YAML may leave out apiVersion and kind.
func parse(t testing.TB, text string) (*resource.Def, resource.Object) {
	t.Helper()
	kind, body, _ := strings.Cut(text, ":")
	for _, d := range api.All() {
		if d.Kind != kind {
			continue
		}
		obj := d.New()
		if err := yaml.UnmarshalStrict([]byte(body), obj); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return d, obj
	}
	t.Fatalf("no kind %q", kind)
	return nil, nil
}

func (w *world) set(t testing.TB, text string) {
	t.Helper()
	d, obj := parse(t, text)
	w.rev++
	w.caches[d].Apply([]cache.Change{{Item: &cache.Item{Key: cache.Key(obj.GetNamespace(), obj.GetName()), Rev: w.rev, Object: obj}}})
}

func (w *world) options() Options {
	return Options{Caches: func(d *resource.Def) *cache.Cache { return w.caches[d] }, Defs: api.All()}
}

// only is a chain of one plugin.
func (w *world) only(t testing.TB, name string) *Chain {
	t.Helper()
	o := w.options()
	return with(t, o, name)
}

func with(t testing.TB, o Options, name string) *Chain {
	t.Helper()
	o.Enable = append(o.Enable, name)
	all, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &Chain{}
	for _, p := range all.plugins {
		if p.Name == name {
			c.plugins = append(c.plugins, p)
		}
	}
	return c
}

// request makes the attributes of a write: "Kind: YAML" for what shall be and
// what is; the operation follows from which are there.
func request(t testing.TB, now, old string) *Attributes {
	t.Helper()
	a := &Attributes{User: &user.DefaultInfo{Name: "alice"}, Operation: Update, Warn: func(string) {}}
	var any resource.Object
	if old != "" {
		a.Def, a.Old = parse(t, old)
		any = a.Old
	} else {
		a.Operation = Create
	}
	if now != "" {
		a.Def, any = parse(t, now)
		a.Object = any
	} else {
		a.Operation = Delete
	}
	a.Namespace, a.Name = any.GetNamespace(), any.GetName()
	return a
}

// run asks both halves and returns what an error says.
func run(t testing.TB, c *Chain, a *Attributes) string {
	t.Helper()
	err := c.Mutate(t.Context(), a)
	if err == nil {
		err = c.Validate(t.Context(), a)
	}
	if err == nil {
		return ""
	}
	if apierrors.ReasonForError(err) == "" {
		t.Errorf("not an API error: %v", err)
	}
	return err.Error()
}

func TestPluginsAreOnAndOffAsAsked(t *testing.T) {
	w := newWorld(t)
	o := w.options()
	byDefault, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	want := "NamespaceLifecycle LimitRanger ServiceAccount NodeRestriction TaintNodesByCondition Priority DefaultTolerationSeconds RuntimeClass " +
		"CertificateApproval CertificateSigning CertificateSubjectRestriction RBACEscalation"
	if got := strings.Join(byDefault.Names(), " "); got != want {
		t.Errorf("by default: got %s, want %s", got, want)
	}
	o.Enable, o.Disable = []string{"AlwaysPullImages"}, []string{"Priority"}
	asked, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := asked.Names(); !slices.Contains(got, "AlwaysPullImages") || slices.Contains(got, "Priority") {
		t.Errorf("as asked: got %s", got)
	}
	o.Enable = []string{"Nonsense"}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), `"Nonsense"`) {
		t.Errorf("unknown plugin: got %v", err)
	}
}

func TestNamespaceLifecycle(t *testing.T) {
	w := newWorld(t, "Namespace: {metadata: {name: team}, status: {phase: Active}}", "Namespace: {metadata: {name: going}, status: {phase: Terminating}}")
	c := w.only(t, "NamespaceLifecycle")
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
		if got := run(t, c, request(t, q.now, q.old)); got != q.want {
			t.Errorf("%s: got %s, want %s", q.name, got, q.want)
		}
	}
	err := c.Mutate(t.Context(), request(t, "ConfigMap: {metadata: {namespace: going, name: x}}", ""))
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("error lacks the cause %s: %v", corev1.NamespaceTerminatingCause, err)
	}
}

func TestCacheThatIsBehindIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	o := w.options()
	asked := 0
	o.Fresh = func(context.Context) error {
		asked++
		w.set(t, "Namespace: {metadata: {name: team}}")
		return nil
	}
	c := with(t, o, "NamespaceLifecycle")
	if got := run(t, c, request(t, "ConfigMap: {metadata: {namespace: team, name: x}}", "")); got != "" || asked != 1 {
		t.Errorf("got %q, asked %d times; want success after one wait", got, asked)
	}
	o.Fresh = func(context.Context) error { return errors.New("store is away") }
	c = with(t, o, "NamespaceLifecycle")
	err := c.Mutate(t.Context(), request(t, "ConfigMap: {metadata: {namespace: other, name: x}}", ""))
	if err == nil || !strings.Contains(err.Error(), "store is away") || apierrors.IsNotFound(err) {
		t.Errorf("store is away: got %v", err)
	}
}

// allow is an authorizer that knows who may do what: "alice approve signers/x".
type allow []string

func (w allow) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	what := a.GetResource()
	if a.GetSubresource() != "" {
		what += "/" + a.GetSubresource()
	}
	if slices.Contains(w, a.GetUser().GetName()+" "+a.GetVerb()+" "+what+" "+a.GetName()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestPodWaitsForTheDefaultServiceAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.only(t, "ServiceAccount")
		time.AfterFunc(300*time.Millisecond, func() { w.set(t, "ServiceAccount: {metadata: {namespace: team, name: default}}") })
		start := time.Now()
		if got := run(t, c, request(t, "Pod: {metadata: {namespace: team, name: x}}", "")); got != "" || time.Since(start) != 300*time.Millisecond {
			t.Errorf("account made a moment later: got %q after %s", got, time.Since(start))
		}
		start = time.Now()
		want := `pods "x" is forbidden: error looking up service account other/default: serviceaccount "default" not found`
		if got := run(t, c, request(t, "Pod: {metadata: {namespace: other, name: x}}", "")); got != want || time.Since(start) != time.Second {
			t.Errorf("account never made: got %q after %s, want %q after a second", got, time.Since(start), want)
		}
	})
}

func TestObjectsOfAllKindsPassTheWholeChain(t *testing.T) {
	w := newWorld(t, "Namespace: {metadata: {name: team}}", "ServiceAccount: {metadata: {namespace: team, name: default}}")
	c, err := New(w.options())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range api.All() {
		obj := d.New()
		obj.SetName("x")
		a := &Attributes{Operation: Create, Def: d, Object: obj, Name: "x", User: &user.DefaultInfo{Name: "alice"}}
		if d.Namespaced {
			obj.SetNamespace("team")
			a.Namespace = "team"
		}
		if got := run(t, c, a); got != "" {
			t.Errorf("%s: %s", d, got)
		}
		a.Operation, a.Old = Update, obj.DeepCopyObject().(resource.Object)
		if got := run(t, c, a); got != "" {
			t.Errorf("update of %s: %s", d, got)
		}
	}
	if w.caches[core.Pods.Def].Len() != 0 {
		t.Error("admission wrote something")
	}
}

func BenchmarkPod(b *testing.B) {
	w := newWorld(b, "Namespace: {metadata: {name: team}}", "ServiceAccount: {metadata: {namespace: team, name: default}}")
	c, err := New(w.options())
	if err != nil {
		b.Fatal(err)
	}
	a := request(b, "Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a}]}}", "")
	pod := a.Object.(*corev1.Pod)
	b.ReportAllocs()
	for b.Loop() {
		p := *pod
		p.Spec.Containers = slices.Clone(pod.Spec.Containers)
		a.Object = &p
		if got := run(b, c, a); got != "" {
			b.Fatal(got)
		}
	}
}
