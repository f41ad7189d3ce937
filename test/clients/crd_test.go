package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

var crds = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// aDefinition is a definition of things in a group, with versions in YAML. It is made, and goes with the test.
type aDefinition struct {
	t     *testing.T
	all   dynamic.Interface
	group string
}

func define(t *testing.T, group, versions string) *aDefinition {
	t.Helper()
	d := &aDefinition{t: t, all: dynamic.NewForConfigOrDie(theServer.config), group: group}
	crd := d.read(fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.%s, labels: {of: %s}}
spec: {group: %s, scope: Cluster, names: {plural: things, kind: Thing}, versions: %s}`, group, group, group, versions))
	if _, err := d.all.Resource(crds).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := d.all.Resource(crds).Delete(context.WithoutCancel(t.Context()), "things."+group, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	d.established()
	return d
}

// read reads an object from YAML.
func (d *aDefinition) read(text string) *unstructured.Unstructured {
	d.t.Helper()
	doc, err := yaml.YAMLToJSON([]byte(text))
	u := &unstructured.Unstructured{}
	if err == nil {
		err = u.UnmarshalJSON(doc)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return u
}

// established waits until the definition says that its kind is served.
func (d *aDefinition) established() {
	d.t.Helper()
	wait.Until(d.t, func() error {
		crd, err := d.all.Resource(crds).Get(d.t.Context(), "things."+d.group, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var typed apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(crd.Object, &typed); err != nil {
			return err
		}
		for _, c := range typed.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", typed.Status.Conditions)
	})
}

// patch changes the definition.
func (d *aDefinition) patch(kind types.PatchType, patch string) {
	d.t.Helper()
	if _, err := d.all.Resource(crds).Patch(d.t.Context(), "things."+d.group, kind, []byte(patch), metav1.PatchOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *aDefinition) at(version string) dynamic.ResourceInterface {
	return d.all.Resource(schema.GroupVersionResource{Group: d.group, Version: version, Resource: "things"})
}

func (d *aDefinition) create(version, rest string) *unstructured.Unstructured {
	d.t.Helper()
	u, err := d.at(version).Create(d.t.Context(), d.read(fmt.Sprintf("apiVersion: %s/%s\nkind: Thing\n%s", d.group, version, rest)), metav1.CreateOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	return u
}

const anyThing = `[{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]`

func TestDefinitionsComeAndGo(t *testing.T) {
	t.Parallel()
	d := define(t, "goes.example.com", anyThing)
	trace.Proves(t, "C-086")
	found := false
	client := discovery.NewDiscoveryClientForConfigOrDie(theServer.config)
	wait.Until(t, func() error {
		_, lists, err := client.ServerGroupsAndResources()
		for _, l := range lists {
			for _, r := range l.APIResources {
				found = found || l.GroupVersion == "goes.example.com/v1" && r.Name == "things" && r.Kind == "Thing"
			}
		}
		if !found {
			return errors.Join(err, errors.New("things are not discovered"))
		}
		return nil
	})
	d.create("v1", "metadata: {name: a}")
	trace.Proves(t, "C-093")
	if err := d.all.Resource(crds).Delete(t.Context(), "things.goes.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, func() error {
		if _, err := d.all.Resource(crds).Get(t.Context(), "things.goes.example.com", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v, want the definition gone", err)
		}
		return nil
	})
	wait.Until(t, func() error { // servers hear of it as clients do
		if _, err := d.at("v1").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v, want no such kind", err)
		}
		return nil
	})
}

func TestStatusOfDefinitionsIsWritten(t *testing.T) {
	t.Parallel()
	d := define(t, "status.example.com", anyThing)
	trace.Proves(t, "C-094")
	all, name := d.all.Resource(crds), "things.status.example.com"
	wait.Until(t, func() error {
		crd, err := all.Get(t.Context(), name, metav1.GetOptions{}, "status")
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		conditions = append(conditions, map[string]any{"type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "Set from e2e test"})
		if err := unstructured.SetNestedSlice(crd.Object, conditions, "status", "conditions"); err != nil {
			return err
		}
		_, err = all.UpdateStatus(t.Context(), crd, metav1.UpdateOptions{})
		return err
	})
	crd, err := all.Patch(t.Context(), name, types.JSONPatchType, []byte(`[{"op":"add","path":"/status/conditions","value":[{"type":"StatusPatched","status":"True","reason":"E2E","message":"Set by e2e test"}]}]`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions"); len(conditions) != 1 || conditions[0].(map[string]any)["type"] != "StatusPatched" {
		t.Errorf("got conditions %v, want the one that was written", conditions)
	}
}

func TestDefinitionsAreListedAndDeletedByLabel(t *testing.T) {
	t.Parallel()
	d := &aDefinition{t: t, all: dynamic.NewForConfigOrDie(theServer.config)}
	all := d.all.Resource(crds)
	other := define(t, "other-label.example.com", anyThing)
	for i := range 10 {
		group := fmt.Sprintf("g%d.label.example.com", i)
		crd := d.read(fmt.Sprintf("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.%s, labels: {e2e-list: crd}}\nspec: {group: %s, scope: Cluster, names: {plural: things, kind: Thing}, versions: %s}", group, group, anyThing))
		if _, err := all.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	trace.Proves(t, "C-095")
	one := metav1.ListOptions{LabelSelector: "e2e-list=crd"}
	list, err := all.List(t.Context(), one)
	if err != nil || len(list.Items) != 10 {
		t.Fatalf("got %d, %v, want 10", len(list.Items), err)
	}
	if err := all.DeleteCollection(t.Context(), metav1.DeleteOptions{}, one); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, func() error {
		list, err := all.List(t.Context(), one)
		if err != nil || len(list.Items) > 0 {
			return fmt.Errorf("%d are left, %v", len(list.Items), err)
		}
		return nil
	})
	other.established()
}

func TestObjectsOfACustomKindAreWatched(t *testing.T) {
	t.Parallel()
	d := define(t, "watch.example.com", anyThing)
	all, err := d.at("v1").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Stop()
	one, err := d.at("v1").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=b"})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Stop()
	d.create("v1", "metadata: {name: a}")
	d.create("v1", "metadata: {name: b}")
	if _, err := d.at("v1").Patch(t.Context(), "b", types.MergePatchType, []byte(`{"x":1}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if err := d.at("v1").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	trace.Proves(t, "API-029/definitions", "C-092")
	told(t, all, "ADDED a, ADDED b, MODIFIED b, DELETED a, DELETED b")
	told(t, one, "ADDED b, MODIFIED b, DELETED b")
}

// told reads as many events as are wanted.
func told(t *testing.T, w watch.Interface, want string) {
	t.Helper()
	var got []string
	for range strings.Count(want, ",") + 1 {
		e, ok := <-w.ResultChan()
		if !ok {
			break
		}
		got = append(got, string(e.Type)+" "+e.Object.(*unstructured.Unstructured).GetName())
	}
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDefaultsApplyToWhatWasStoredBefore(t *testing.T) {
	t.Parallel()
	const text = `[{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string}, b: {type: string}}}}}]`
	d := define(t, "defaults.example.com", text)
	read := func(name string) string {
		u, err := d.at("v1").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(u.Object["a"], u.Object["b"])
	}
	shows := func(name, want string) {
		t.Helper()
		wait.Until(t, func() error {
			if got := read(name); got != want {
				return fmt.Errorf("%s has %s, want %s", name, got, want)
			}
			return nil
		})
	}
	const at = "/spec/versions/0/schema/openAPIV3Schema/properties/"
	d.create("v1", "metadata: {name: before}")
	d.patch(types.JSONPatchType, `[{"op":"add","path":"`+at+`a/default","value":"A"}]`)
	trace.Proves(t, "C-096")
	shows("before", "A<nil>")
	if got := d.create("v1", "metadata: {name: after}"); got.Object["a"] != "A" {
		t.Errorf("got %v, want the default", got.Object)
	}
	d.patch(types.JSONPatchType, `[{"op":"remove","path":"`+at+`a/default"},{"op":"add","path":"`+at+`b/default","value":"B"}]`)
	shows("before", "<nil>B")
	shows("after", "AB")
}

func TestGroupOfDefinitionsIsDiscovered(t *testing.T) {
	t.Parallel()
	trace.Proves(t, "C-097")
	for path, wants := range map[string][]string{
		"/apis":                         {`"name":"apiextensions.k8s.io"`, `"groupVersion":"apiextensions.k8s.io/v1"`},
		"/apis/apiextensions.k8s.io":    {`"groupVersion":"apiextensions.k8s.io/v1"`, `"version":"v1"`},
		"/apis/apiextensions.k8s.io/v1": {`"name":"customresourcedefinitions"`, `"kind":"CustomResourceDefinition"`},
	} {
		code, body := request(t, http.MethodGet, path, "", "")
		for _, want := range wants {
			if code != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s: got %d without %s: %s", path, code, want, body)
			}
		}
	}
}

// request sends a request and returns the answer.
func request(t *testing.T, method, path, kind, body string) (int, string) {
	t.Helper()
	client := theServer.http(t)
	r, err := http.NewRequestWithContext(t.Context(), method, theServer.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// published are the kinds that a document of OpenAPI 2 has definitions of.
func published(t *testing.T) map[string]bool {
	t.Helper()
	_, body := request(t, http.MethodGet, "/openapi/v2", "", "")
	var doc struct{ Definitions map[string]json.RawMessage }
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for name := range doc.Definitions {
		out[name] = true
	}
	return out
}

func TestDocumentsFollowDefinitions(t *testing.T) {
	t.Parallel()
	version := func(name string, stored bool) string {
		return fmt.Sprintf(`{name: %s, served: true, storage: %t, schema: {openAPIV3Schema: {type: object, properties: {in%s: {type: string}}}}}`, name, stored, name)
	}
	one := define(t, "one-doc.example.com", "["+version("v2", true)+", "+version("v3", false)+"]")
	define(t, "two-doc.example.com", "["+version("v1", true)+"]")
	has := func(want map[string]bool) {
		t.Helper()
		wait.Until(t, func() error {
			got := published(t)
			for name, there := range want {
				if got["com.example."+name] != there {
					return fmt.Errorf("%s is published: %t, want %t", name, !there, there)
				}
			}
			return nil
		})
	}
	trace.Proves(t, "C-105", "C-107")
	has(map[string]bool{"one-doc.v2.Thing": true, "one-doc.v3.Thing": true, "two-doc.v1.Thing": true})
	one.patch(types.JSONPatchType, `[{"op":"replace","path":"/spec/versions/1/name","value":"v4"}]`)
	trace.Proves(t, "C-100")
	has(map[string]bool{"one-doc.v2.Thing": true, "one-doc.v3.Thing": false, "one-doc.v4.Thing": true, "two-doc.v1.Thing": true})
	one.patch(types.JSONPatchType, `[{"op":"replace","path":"/spec/versions/1/served","value":false}]`)
	has(map[string]bool{"one-doc.v2.Thing": true, "one-doc.v4.Thing": false})
}

func TestStrictApplyOfCustomObjects(t *testing.T) {
	t.Parallel()
	define(t, "open-strict.example.com", anyThing)
	define(t, "strict.example.com", `[{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {
  spec: {type: object, properties: {
    cronSpec: {type: string, pattern: '^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$'},
    ports: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [containerPort, protocol], items: {type: object, required: [containerPort, protocol], properties: {containerPort: {type: integer}, protocol: {type: string}}}},
    embedded: {type: object, x-kubernetes-embedded-resource: true, properties: {kind: {type: string}, apiVersion: {type: string}, metadata: {type: object}}}}}}}}}]`)
	apply := func(group, rest string) (int, string) {
		t.Helper()
		path := "/apis/" + group + "/v1/things/thing?fieldManager=test&fieldValidation=Strict"
		return request(t, http.MethodPatch, path, string(types.ApplyPatchType), fmt.Sprintf("apiVersion: %s/v1\nkind: Thing\n%s", group, rest))
	}
	const named, good = "metadata: {name: thing, finalizers: [test/finalizer]}\n", "spec: {cronSpec: '* * * * */5', ports: [{containerPort: 80, protocol: TCP}]}\n"
	for _, tc := range []struct{ id, group, rest, want string }{
		{"C-110", "open-strict.example.com", "metadata: {name: thing}\nunknown: {a: [1]}\n", ""},
		{"C-111", "strict.example.com", named + good, ""},
		{"C-112", "strict.example.com", named + good + "unknownField: x\n", ".unknownField: field not declared in schema"},
		{"C-113", "open-strict.example.com", "metadata: {name: thing}\nunknown: a\nunknown: b\n", `line 5: key \"unknown\" already set in map`},
		{"C-115", "strict.example.com", "metadata: {name: thing, unknownMeta: x}\n" + good, ".metadata.unknownMeta: field not declared in schema"},
		{"C-115", "strict.example.com", named + "spec: {cronSpec: '* * * * */5', embedded: {apiVersion: v1, kind: A, metadata: {name: a, unknownSubMeta: x}}}\n", ".spec.embedded.metadata.unknownSubMeta: field not declared in schema"},
	} {
		trace.Proves(t, tc.id)
		if code, body := apply(tc.group, tc.rest); tc.want == "" && code >= 300 || tc.want != "" && (code < 400 || !strings.Contains(body, tc.want)) {
			t.Errorf("%s: got %d %s, want %q", tc.id, code, body, tc.want)
		}
	}
	for _, kind := range []string{"strict", "open-strict"} {
		d := &aDefinition{t: t, all: dynamic.NewForConfigOrDie(theServer.config), group: kind + ".example.com"}
		if _, err := d.at("v1").Patch(t.Context(), "thing", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}
}
