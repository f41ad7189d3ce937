package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/extend"
	"github.com/kemudi/kemudi/internal/resource"
)

// widgets is a definition with two versions, v1 being stored.
const widgets = `
metadata: {name: widgets.example.com, uid: u1, generation: 1}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}}
    selectableFields: [{jsonPath: .spec.color}]
    additionalPrinterColumns:
    - {name: Color, type: string, jsonPath: .spec.color}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-validations:
            - {rule: "self.color != 'forbidden'", message: such a color there is not}
            properties:
              color: {type: string, default: red}
              replicas: {type: integer, minimum: 0}
              tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, port: {type: integer}}}
              inner: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, properties: {replicas: {type: integer}, selector: {type: string}}}
  - name: v2
    served: true
    deprecated: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const (
	widgetsAt  = "/apis/example.com/v1/namespaces/default/widgets"
	widgetsAt2 = "/apis/example.com/v2/namespaces/default/widgets"
	mergePatch = "Content-Type: application/merge-patch+json"
	jsonPatch  = "Content-Type: application/json-patch+json"
)

// compiled is the kind that a definition makes.
func compiled(tb testing.TB, text string) custom.Kind {
	tb.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(text), crd); err != nil {
		tb.Fatal(err)
	}
	crd.Status.AcceptedNames = crd.Spec.Names
	return extend.Compile(extend.NewSource(crd), nil)
}

// serves adds kinds that are known at run time only.
func serves(defs ...*resource.Def) func(o *Options) {
	return func(o *Options) { o.Defs = append(api.All(), defs...) }
}

// widget is a widget's JSON.
func widget(name, rest string) string {
	return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `"}` + rest + `}`
}

// customOnEtcd are the tests of this file that are run on etcd, too.
func customOnEtcd() map[string]func(t *testing.T) {
	return map[string]func(t *testing.T){
		"TestObjectsOfKindsAtRunTimeAreCreatedReadChangedAndDeleted": TestObjectsOfKindsAtRunTimeAreCreatedReadChangedAndDeleted,
		"TestKindsAtRunTimeAreReadStrictly":                          TestKindsAtRunTimeAreReadStrictly,
		"TestNewFinalizersThatOthersMayHaveAreWarnedOf":              TestNewFinalizersThatOthersMayHaveAreWarnedOf,
		"TestFieldsOfKindsAtRunTimeHaveManagers":                     TestFieldsOfKindsAtRunTimeHaveManagers,
		"TestVersionsAreConvertedOnTheWayOut":                        TestVersionsAreConvertedOnTheWayOut,
		"TestWatchesEndWithTheDefinitionThatTheyAreOf":               TestWatchesEndWithTheDefinitionThatTheyAreOf,
		"TestReplacedDefinitionKeepsWhatIsTheSame":                   TestReplacedDefinitionKeepsWhatIsTheSame,
		"TestNothingIsMadeOfAKindWhoseDefinitionGoes":                TestNothingIsMadeOfAKindWhoseDefinitionGoes,
		"TestNullThatMayNotBeIsRefusedOfWhoAppliesIt":                TestNullThatMayNotBeIsRefusedOfWhoAppliesIt,
		"TestObjectsHaveTheDefaultsOfTheVersionThatIsStored":         TestObjectsHaveTheDefaultsOfTheVersionThatIsStored,
	}
}

// dug is the value at a path in a JSON document.
func dug(t *testing.T, doc string, path ...string) any {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(doc), &u.Object); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	v, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
	return v
}

func TestPathsThatKindsAtRunTimeDoNotHaveAreNotThere(t *testing.T) {
	cluster := compiled(t, strings.NewReplacer("widgets", "gadgets", "widget", "gadget", "Widget", "Gadget", "Namespaced", "Cluster").Replace(widgets))
	f := newFixture(t, serves(custom.Define(compiled(t, widgets)).Def, custom.Define(cluster).Def))
	f.must(201, "POST", widgetsAt, widget("one", ""))
	for _, q := range []struct{ method, path string }{
		{"GET", "/apis/example.com/v1/things"},
		{"GET", "/apis/example.com/v1/namespaces/default/things/one"},
		{"GET", "/apis/example.com/v1/widgets/one"},
		{"POST", "/apis/example.com/v1/widgets"},
		{"DELETE", "/apis/example.com/v1/widgets"},
		{"GET", "/apis/example.com/v1/namespaces/default/gadgets"},
		{"POST", "/apis/example.com/v1/namespaces/default/gadgets"},
		{"GET", "/apis/example.com/v3/widgets"},
	} {
		w := f.ask(q.method, q.path, widget("two", ""))
		if got := w.Body.String(); w.Code != 404 || got != "404 page not found\n" {
			t.Errorf("%s %s: got %d %q, want the plain text of what is not there", q.method, q.path, w.Code, got)
		}
	}
	f.must(200, "GET", "/apis/example.com/v1/widgets", "")
	f.must(200, "GET", "/apis/example.com/v1/gadgets", "")
	f.must(200, "HEAD", widgetsAt+"/one", "")
	for _, q := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", widgetsAt + "/one/log", "", 404, `widgets.example.com \"one\" not found`},
		{"POST", widgetsAt, `{"metadata":{"name":"two"}}`, 400, `"message":"the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{\"metadata\":{\"name\":\"two\"}}' ({\"metadata\":{\"name\":\"two\"}})"`},
		{"POST", widgetsAt, `{"kind":"Widget","metadata":{"name":"two"}}`, 400, `the API version in the data () does not match the expected API version (example.com/v1)`},
		{"POST", widgetsAt, strings.Replace(widget("two", ""), "Widget", "Gadget", 1), 422, `Gadget.example.com \"two\" is invalid: kind: Invalid value: \"Gadget\": must be Widget`},
		{"PUT", widgetsAt + "/one", widget("one", ""), 422, `widgets.example.com \"one\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update`},
		{"PUT", widgetsAt + "/one/status", widget("one", ""), 422, `widgets.example.com \"one\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update`},
		{"PUT", widgetsAt + "/one/scale", `{"metadata":{"name":"one"},"spec":{"replicas":2}}`, 200, `"spec":{"replicas":2}`},
		{"PUT", widgetsAt, widget("one", ""), 400, `"message":"name must be provided"`},
		{"OPTIONS", widgetsAt, "", 405, `"message":" is not supported on resources of kind \"widgets.example.com\""`},
		{"PATCH", widgetsAt + "/one", `{"kind":"Gadget"}`, 422, `Gadget.example.com \"one\" is invalid: kind: Invalid value: \"Gadget\": must be Widget`},
		{"PATCH", widgetsAt + "/one", `{"apiVersion":"example.com/v2"}`, 422, `Widget.example.com \"one\" is invalid: apiVersion: Invalid value: \"example.com/v2\": must be example.com/v1`},
	} {
		header := "Content-Type: application/json"
		if q.method == "PATCH" {
			header = mergePatch
		}
		w := f.ask(q.method, q.path, q.body, header)
		if got := w.Body.String(); w.Code != q.code || !strings.Contains(got, q.want) {
			t.Errorf("%s %s: got %d %s, want %d %s", q.method, q.path, w.Code, got, q.code, q.want)
		}
	}
}

func TestObjectsOfKindsAtRunTimeAreCreatedReadChangedAndDeleted(t *testing.T) {
	f := newFixture(t, serves(custom.Define(compiled(t, widgets)).Def))
	created := f.must(201, "POST", widgetsAt, widget("one", `,"spec":{"replicas":2,"unknown":1},"status":{"replicas":7}`))
	if !strings.HasPrefix(created, `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"one","namespace":"default","uid":"`) ||
		!strings.HasSuffix(strings.TrimSpace(created), `,"spec":{"color":"red","replicas":2}}`) {
		t.Errorf("create: got %s, want it defaulted, pruned, and without a status", created)
	}
	if got := f.must(200, "GET", widgetsAt+"/one", ""); got != created {
		t.Errorf("get: got %s, want what create answered: %s", got, created)
	}
	if stored, _, err := f.store.Get(t.Context(), "/registry/example.com/widgets/default/one"); err != nil ||
		!strings.HasPrefix(string(stored.Value), `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"one"`) {
		t.Errorf("stored: got %s, %v, want JSON that says what it is", stored.Value, err)
	}
	list := f.must(200, "GET", widgetsAt, "")
	if !strings.HasPrefix(list, `{"kind":"WidgetList","apiVersion":"example.com/v1"`) || !strings.Contains(list, `"items":[{"kind":"Widget","apiVersion":"example.com/v1","metadata":{`) || !strings.Contains(list, `"color":"red"`) {
		t.Errorf("list: got %s", list)
	}
	updated := f.must(200, "PUT", widgetsAt+"/one", strings.Replace(created, `"replicas":2`, `"replicas":3`, 1))
	if g := dug(t, updated, "metadata", "generation"); g != float64(2) {
		t.Errorf("update: got generation %v, want 2: %s", g, updated)
	}
	if got := f.must(409, "PUT", widgetsAt+"/one", created); !strings.Contains(got, "the object has been modified") {
		t.Errorf("stale update: got %s", got)
	}
	patched := f.must(200, "PATCH", widgetsAt+"/one", `{"metadata":{"labels":{"a":"b"}}}`, mergePatch)
	if g := dug(t, patched, "metadata", "generation"); g != float64(2) {
		t.Errorf("label: got generation %v, want 2", g)
	}
	patched = f.must(200, "PATCH", widgetsAt+"/one", `[{"op":"replace","path":"/spec/replicas","value":5}]`, jsonPatch)
	if n := dug(t, patched, "spec", "replicas"); n != float64(5) {
		t.Errorf("JSON patch: got %v replicas, want 5", n)
	}
	for _, kind := range []string{"strategic-merge-patch+json", "json"} {
		refused := f.must(415, "PATCH", widgetsAt+"/one", `{}`, "Content-Type: application/"+kind)
		if want := `accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"`; !strings.Contains(refused, want) {
			t.Errorf("%s: got %s, want %s", kind, refused, want)
		}
	}
	if got, want := f.must(404, "GET", widgetsAt+"/one/other", ""), `"message":"widgets.example.com \"one\" not found"`; !strings.Contains(got, want) {
		t.Errorf("unknown subresource: got %s, want %s", got, want)
	}
	if got, want := f.must(405, "DELETE", widgetsAt+"/one/status", ""), `"message":"delete is not supported on resources of kind \"widgets.example.com\""`; !strings.Contains(got, want) {
		t.Errorf("wrong verb of a subresource: got %s, want %s", got, want)
	}
	status := f.must(200, "PATCH", widgetsAt+"/one/status", `{"spec":{"replicas":9},"status":{"replicas":1,"selector":"a=b"}}`, mergePatch)
	if n, g := dug(t, status, "spec", "replicas"), dug(t, status, "metadata", "generation"); n != float64(5) || g != float64(3) {
		t.Errorf("status: got %v replicas of generation %v, want 5 of 3: %s", n, g, status)
	}
	scale := f.must(200, "GET", widgetsAt+"/one/scale", "")
	if n, s := dug(t, scale, "spec", "replicas"), dug(t, scale, "status", "selector"); n != float64(5) || s != "a=b" {
		t.Errorf("scale: got %s", scale)
	}
	f.must(200, "PATCH", widgetsAt+"/one/scale", `{"spec":{"replicas":6}}`, mergePatch)
	if got := f.must(200, "GET", widgetsAt+"/one", ""); dug(t, got, "spec", "replicas") != float64(6) || dug(t, got, "status", "selector") != "a=b" {
		t.Errorf("scaled: got %s", got)
	}
	f.must(201, "POST", widgetsAt, widget("bare", `,"spec":{}`))
	if got := f.must(500, "GET", widgetsAt+"/bare/scale", ""); !strings.Contains(got, `the spec replicas field \".spec.replicas\" does not exist`) {
		t.Errorf("scale without replicas: got %s", got)
	}
	f.must(200, "PATCH", widgetsAt+"/bare/scale", `{"spec":{"replicas":1}}`, mergePatch)
	f.must(200, "GET", widgetsAt+"/bare/scale", "")
	f.must(200, "DELETE", widgetsAt+"/bare", "")
	if got := f.must(422, "PATCH", widgetsAt+"/one", `{"spec":{"color":"forbidden"}}`, mergePatch); !strings.Contains(got, "such a color there is not") {
		t.Errorf("against a rule: got %s", got)
	}
	table := f.must(200, "GET", widgetsAt, "", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	if !strings.Contains(table, `"cells":["one","red"]`) {
		t.Errorf("table: got %s", table)
	}
	part := f.must(200, "GET", widgetsAt, "", "Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	if strings.Contains(part, "spec") && !strings.Contains(part, "f:spec") {
		t.Errorf("metadata: got %s", part)
	}
	if w := f.ask("GET", widgetsAt+"/one", "", "Accept: application/vnd.kubernetes.protobuf"); w.Code != http.StatusNotAcceptable {
		t.Errorf("protobuf: got %d, want 406", w.Code)
	}
	f.must(201, "POST", widgetsAt, widget("two", `,"spec":{"color":"blue"}`))
	if got := f.must(200, "GET", widgetsAt+"?fieldSelector=spec.color%3Dblue", ""); !strings.Contains(got, `"two"`) || strings.Contains(got, `"name":"one"`) {
		t.Errorf("field selector: got %s", got)
	}
	if got := f.must(400, "GET", widgetsAt+"?fieldSelector=spec.replicas%3D1", ""); !strings.Contains(got, "field label not supported: spec.replicas") {
		t.Errorf("unknown field: got %s", got)
	}
	f.must(200, "DELETE", widgetsAt+"/one", "")
	f.must(404, "GET", widgetsAt+"/one", "")
}

func TestKindsAtRunTimeAreReadStrictly(t *testing.T) {
	f := newFixture(t, serves(custom.Define(compiled(t, widgets)).Def))
	odd := widget("odd", `,"spec":{"color":"a","color":"b","unknown":1},"more":2`)
	odd = strings.Replace(odd, `"name":"odd"`, `"name":"odd","unknownMeta":"x"`, 1)
	refused := f.must(400, "POST", widgetsAt+"?fieldValidation=Strict", odd)
	for _, want := range []string{
		`Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: `, `duplicate field \"spec.color\"`,
		`unknown field \"metadata.unknownMeta\"`, `unknown field \"spec.unknown\"`, `unknown field \"more\"`,
	} {
		if !strings.Contains(refused, want) {
			t.Errorf("strict: got %s, want %s", refused, want)
		}
	}
	w := f.ask("POST", widgetsAt, odd)
	if warnings := warningsOf(t, w.Header()); w.Code != 201 || len(warnings) != 4 {
		t.Errorf("warn: got %d %q, want 201 and four warnings", w.Code, warnings)
	}
	read := decoded[metav1.PartialObjectMetadata](t, w.Body.String())
	w = f.ask("PUT", widgetsAt+"/odd?fieldValidation=Ignore", strings.Replace(odd, `"name":"odd"`, `"name":"odd","resourceVersion":"`+read.ResourceVersion+`"`, 1))
	if warnings := warningsOf(t, w.Header()); w.Code != 200 || len(warnings) != 0 {
		t.Errorf("ignore: got %d %q, want 200 without warnings", w.Code, warnings)
	}
	for _, mode := range []string{"Strict", "Ignore"} {
		refused := f.must(400, "POST", widgetsAt+"?fieldValidation="+mode, widget("inner", `,"spec":{"inner":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":42}}}`))
		if want := `Widget in version \"v1\" cannot be handled as a Widget: spec.inner.metadata: Invalid value: `; !strings.Contains(refused, want) {
			t.Errorf("metadata within that is none: got %s, want %s", refused, want)
		}
	}
	const undeclared = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: new}\nspec: {color: a}\nunknownField: 1\n"
	if got := f.must(400, "PATCH", widgetsAt+"/new?fieldManager=m&fieldValidation=Strict", undeclared, applyPatch); !strings.Contains(got, ".unknownField: field not declared in schema") {
		t.Errorf("apply: got %s", got)
	}
	const twice = "apiVersion: example.com/v2\nkind: Widget\nmetadata: {name: new}\nfoo: 1\nfoo: 2\n"
	if got := f.must(400, "PATCH", widgetsAt2+"/new?fieldManager=m&fieldValidation=Strict", twice, applyPatch); !strings.Contains(got, `line 5: key \"foo\" already set in map`) {
		t.Errorf("apply: got %s", got)
	}
}

func TestNewFinalizersThatOthersMayHaveAreWarnedOf(t *testing.T) {
	f := newFixture(t, serves(custom.Define(compiled(t, widgets)).Def))
	const (
		bare   = `metadata.finalizers: "mine": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers`
		dotted = `metadata.finalizers: "mine.example.com": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers`
	)
	named := func(finalizers string) string {
		return strings.Replace(widget("one", ""), `"name":"one"`, `"name":"one","finalizers":[`+finalizers+`]`, 1)
	}
	for _, q := range []struct {
		method, path, body string
		headers            []string
		want               []string // what the warnings begin with
	}{
		{"POST", widgetsAt, named(`"mine.example.com","mine","example.com/mine","orphan"`), nil, []string{bare, dotted}},
		{"PATCH", widgetsAt + "/one", `{"metadata":{"labels":{"a":"b"}}}`, []string{mergePatch}, nil},
		{"PATCH", widgetsAt2 + "/one", `{"metadata":{"finalizers":["mine","other","mine.example.com"]}}`, []string{mergePatch}, []string{"example.com/v2 Widget is deprecated", strings.Replace(bare, "mine", "other", 1)}},
		{"PATCH", widgetsAt + "/one/status", `{"status":{"replicas":1}}`, []string{mergePatch}, nil},
	} {
		w := f.ask(q.method, q.path, q.body, q.headers...)
		got := warningsOf(t, w.Header())
		if w.Code >= 300 || !slices.EqualFunc(got, q.want, strings.HasPrefix) {
			t.Errorf("%s %s %s: got %d and %q, want %q", q.method, q.path, q.body, w.Code, got, q.want)
		}
	}
}

func TestFieldsOfKindsAtRunTimeHaveManagers(t *testing.T) {
	f := newFixture(t, serves(custom.Define(compiled(t, widgets)).Def))
	const doc = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: one, labels: {a: b}}\nspec: {replicas: 2, tags: [x], ports: [{name: p, port: 1}]}\n"
	applied := f.must(201, "PATCH", widgetsAt+"/one?fieldManager=first", doc, applyPatch)
	if !strings.Contains(applied, `"fieldsV1":{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:ports":{"k:{\"name\":\"p\"}":{".":{},"f:name":{},"f:port":{}}},"f:replicas":{},"f:tags":{"v:\"x\"":{}}}}`) {
		t.Errorf("apply: got %s", applied)
	}
	const other = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: one}\nspec: {replicas: 3}\n"
	if got := f.must(409, "PATCH", widgetsAt+"/one?fieldManager=second", other, applyPatch); !strings.Contains(got, `conflict with \"first\": .spec.replicas`) {
		t.Errorf("conflict: got %s", got)
	}
	f.must(200, "PATCH", widgetsAt+"/one?fieldManager=second&force=true", other, applyPatch)
	got := f.must(200, "PATCH", widgetsAt+"/one?fieldManager=first", strings.Replace(doc, "replicas: 2, tags: [x], ", "", 1), applyPatch)
	if dug(t, got, "spec", "tags") != nil || dug(t, got, "spec", "replicas") != float64(3) {
		t.Errorf("given up: got %s, want no tags, and the other's replicas", got)
	}
	got = f.must(200, "PATCH", widgetsAt+"/one?fieldManager=editor", `{"spec":{"color":"blue","tags":["y"],"ports":[{"name":"p","port":1},{"name":"q","port":2}]}}`, mergePatch)
	if !strings.Contains(got, `{"manager":"editor","operation":"Update"`) ||
		!strings.Contains(got, `"fieldsV1":{"f:spec":{"f:color":{},"f:ports":{"k:{\"name\":\"q\"}":{".":{},"f:name":{},"f:port":{}}},"f:tags":{".":{},"v:\"y\"":{}}}}`) {
		t.Errorf("update: got %s", got)
	}
	got = f.must(200, "PATCH", widgetsAt+"/one/status?fieldManager=keeper", `{"status":{"replicas":1}}`, mergePatch)
	if !strings.Contains(got, `"fieldsV1":{"f:status":{".":{},"f:replicas":{}}},"subresource":"status"`) && !strings.Contains(got, `"fieldsV1":{"f:status":{".":{},"f:replicas":{}}}`) {
		t.Errorf("status: got %s", got)
	}
	same := f.must(200, "PATCH", widgetsAt+"/one?fieldManager=second", other, applyPatch)
	if dug(t, same, "metadata", "resourceVersion") != dug(t, got, "metadata", "resourceVersion") {
		t.Errorf("the same applied again wrote the object")
	}
}

// TestVersionsAreConvertedOnTheWayOut has a definition whose versions differ in their fields.
func TestVersionsAreConvertedOnTheWayOut(t *testing.T) {
	asked := 0
	k := compiled(t, widgets)
	k.Convert = func(_ context.Context, objs []*custom.Object, to string) ([]*custom.Object, error) {
		asked++
		out := make([]*custom.Object, len(objs))
		for i, o := range objs {
			tree := o.Tree()
			tree["apiVersion"] = "example.com/" + to
			if spec, ok := tree["spec"].(map[string]any); ok && to == "v2" {
				tree["colour"] = spec["color"]
				delete(spec, "color")
			} else if to == "v1" {
				tree["spec"] = map[string]any{"color": tree["colour"]}
				delete(tree, "colour")
			}
			var err error
			if out[i], err = custom.FromTree(tree); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	f := newFixture(t, serves(custom.Define(k).Def))
	f.must(201, "POST", widgetsAt, widget("one", `,"spec":{}`))
	f.must(201, "POST", widgetsAt, widget("two", `,"spec":{"color":"blue"}`))
	list := f.must(200, "GET", widgetsAt2, "")
	if asked != 1 || !strings.Contains(list, `"colour":"red"`) || !strings.Contains(list, `"colour":"blue"`) {
		t.Errorf("got %s by %d conversions, want both by one", list, asked)
	}
	if again := f.must(200, "GET", widgetsAt2, ""); asked != 1 || again != list {
		t.Errorf("the same list made %d conversions, want 1", asked)
	}
	w := f.ask("POST", widgetsAt2, `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"three"},"colour":"green"}`)
	if w.Code != 201 || len(warningsOf(t, w.Header())) != 1 || !strings.Contains(w.Body.String(), `"colour":"green"`) {
		t.Errorf("create: got %d %s with %q", w.Code, w.Body, warningsOf(t, w.Header()))
	}
	if got := f.must(200, "GET", widgetsAt+"/three", ""); dug(t, got, "spec", "color") != "green" {
		t.Errorf("got %s, want what was sent to the other version", got)
	}
	if got := f.must(200, "PATCH", widgetsAt2+"/three", `{"colour":"gray"}`, mergePatch); dug(t, got, "colour") != "gray" {
		t.Errorf("patch: got %s", got)
	}
}

func TestObjectsHaveTheDefaultsOfTheVersionThatIsStored(t *testing.T) {
	const both = `
metadata: {name: gadgets.example.com, uid: u2, generation: 1}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {first: {type: string, default: one}, second: {type: string}, old: {type: string, default: stays}}}, status: {type: object, properties: {phase: {type: string}}}}}}
  - name: v2
    served: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {first: {type: string}, second: {type: string, default: two}}}, status: {type: object, properties: {phase: {type: string}}}}}}
`
	gadget := func(name string) string {
		return `{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{"name":"` + name + `"},"spec":{}}`
	}
	const at1, at2 = "/apis/example.com/v1/namespaces/default/gadgets", "/apis/example.com/v2/namespaces/default/gadgets"
	first := custom.Define(compiled(t, both)).Def
	f := newFixture(t, serves(first))
	shows := func(what, doc string, want map[string]any) {
		t.Helper()
		if got := dug(t, doc, "spec"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	// What is sent has the defaults of its version, and what is answered those of the one that is stored, too.
	whole := map[string]any{"first": "one", "second": "two"}
	shows("made at v2", f.must(201, "POST", at2, gadget("a")), whole)
	shows("read at v2", f.must(200, "GET", at2+"/a", ""), whole)
	shows("read at v1", f.must(200, "GET", at1+"/a", ""), map[string]any{"first": "one", "second": "two", "old": "stays"})
	f.must(201, "POST", at1, strings.Replace(gadget("b"), "v2", "v1", 1))
	shows("made at v1, read at v2", f.must(200, "GET", at2+"/b", ""), map[string]any{"first": "one"})
	shows("of which v2 has changed the status", f.must(200, "PATCH", at2+"/b/status", `{"status":{"phase":"x"}}`, mergePatch), map[string]any{"first": "one"})
	// A default that comes later is shown at all versions if it is that of the one that is stored.
	later := func(text, of, with string) string { return strings.Replace(text, of, with, 1) }
	k := compiled(t, later(both, "second: {type: string}, old", "second: {type: string, default: late}, old"))
	k.Replaces = first
	second := custom.Define(k).Def
	f.SetDefs(append(api.All(), second))
	shows("with a default that has come", f.must(200, "GET", at2+"/b", ""), map[string]any{"first": "one", "second": "late"})
	k = compiled(t, later(both, "{first: {type: string}, second", "{first: {type: string, default: unseen}, second"))
	k.Replaces = second
	f.SetDefs(append(api.All(), custom.Define(k).Def))
	shows("with a default of the other version", f.must(200, "GET", at2+"/b", ""), map[string]any{"first": "one"})
}

func TestNullThatMayNotBeIsRefusedOfWhoAppliesIt(t *testing.T) {
	f := newFixture(t, serves(custom.Define(compiled(t, strings.Replace(widgets, "tags: {type: array,", "note: {type: string, nullable: true}\n              tags: {type: array,", 1))).Def))
	apply := func(spec string) string {
		return "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: one}\nspec: {" + spec + "}\n"
	}
	f.must(201, "PATCH", widgetsAt+"/one?fieldManager=m", apply("color: blue, replicas: 1, note: a, tags: [b]"), applyPatch)
	for spec, want := range map[string]string{
		"replicas: null": `spec.replicas in body must be of type integer: \"null\"`, "tags: null": `spec.tags in body must be of type array: \"null\"`,
	} {
		if got := f.must(422, "PATCH", widgetsAt+"/one?fieldManager=m", apply(spec), applyPatch); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
	}
	got := f.must(200, "PATCH", widgetsAt+"/one?fieldManager=m", apply("color: null, note: null"), applyPatch)
	if spec, want := dug(t, got, "spec"), map[string]any{"color": "red", "note": nil}; !reflect.DeepEqual(spec, want) {
		t.Errorf("got %v, want %v", spec, want)
	}
	// Who sends a whole object, or a patch of another kind, need not know.
	got = f.must(200, "PATCH", widgetsAt+"/one", `[{"op":"add","path":"/spec/replicas","value":null}]`, jsonPatch)
	if spec, want := dug(t, got, "spec"), map[string]any{"color": "red", "note": nil}; !reflect.DeepEqual(spec, want) {
		t.Errorf("got %v, want %v", spec, want)
	}
}

func TestNothingIsMadeOfAKindWhoseDefinitionGoes(t *testing.T) {
	first := custom.Define(compiled(t, widgets)).Def
	f := newFixture(t, serves(first))
	f.must(201, "POST", widgetsAt, widget("one", ""))
	k := compiled(t, widgets)
	k.Ending, k.Replaces, k.ID = true, first, "ending"
	f.SetDefs(append(api.All(), custom.Define(k).Def))
	const why = "create not allowed while custom resource definition is terminating"
	if got := f.must(403, "POST", widgetsAt, widget("two", "")); !strings.Contains(got, why) {
		t.Errorf("create: got %s, want %s", got, why)
	}
	apply := func(name string) string {
		return "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: " + name + "}\nspec: {color: blue}\n"
	}
	for _, query := range []string{"", "&dryRun=All"} {
		if got := f.must(403, "PATCH", widgetsAt+"/two?fieldManager=m"+query, apply("two"), applyPatch); !strings.Contains(got, `widgets.example.com \"two\" is forbidden: `+why) {
			t.Errorf("apply%s: got %s, want %s", query, got, why)
		}
	}
	f.must(404, "GET", widgetsAt+"/two", "")
	if got := f.must(200, "PATCH", widgetsAt+"/one?fieldManager=m&force=true", apply("one"), applyPatch); dug(t, got, "spec", "color") != "blue" {
		t.Errorf("got %s, want it changed", got)
	}
	f.must(200, "DELETE", widgetsAt+"/one", "")
}

func TestWatchTellsOfKindsAtRunTime(t *testing.T) {
	f := newFixture(t, serves(custom.Define(compiled(t, widgets)).Def))
	f.must(201, "POST", widgetsAt, widget("one", `,"spec":{}`))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", f.url()+widgetsAt+"?watch=true&fieldSelector=spec.color%3Dred", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.http.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	events := json.NewDecoder(res.Body)
	next := func() (kind string, obj unstructured.Unstructured) {
		t.Helper()
		var e struct {
			Type   string
			Object map[string]any
		}
		if err := events.Decode(&e); err != nil {
			t.Fatal(err)
		}
		return e.Type, unstructured.Unstructured{Object: e.Object}
	}
	if kind, obj := next(); kind != "ADDED" || obj.GetName() != "one" || obj.GetAPIVersion() != "example.com/v1" {
		t.Errorf("got %s %v, want one added", kind, obj)
	}
	f.must(200, "PATCH", widgetsAt+"/one", `{"spec":{"replicas":1}}`, mergePatch)
	if kind, _ := next(); kind != "MODIFIED" {
		t.Errorf("got %s, want MODIFIED", kind)
	}
	f.must(200, "PATCH", widgetsAt+"/one", `{"spec":{"color":"blue"}}`, mergePatch)
	if kind, _ := next(); kind != "DELETED" {
		t.Errorf("left the selection: got %s, want DELETED", kind)
	}
}

// TestWatchesEndWithTheDefinitionThatTheyAreOf has a definition get another field, say nothing new, go, and be gone.
func TestWatchesEndWithTheDefinitionThatTheyAreOf(t *testing.T) {
	first := custom.Define(compiled(t, widgets)).Def
	f := newFixture(t, serves(first))
	watch := func(path string) *json.Decoder {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", f.url()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.http.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return json.NewDecoder(res.Body)
	}
	next := func(events *json.Decoder, want string) {
		t.Helper()
		var e struct {
			Type   string
			Object unstructured.Unstructured
		}
		err := events.Decode(&e)
		name := e.Object.GetName()
		if size, ok, _ := unstructured.NestedString(e.Object.Object, "spec", "size"); ok {
			name += " " + size
		}
		if got := strings.TrimSpace(e.Type + " " + name); want == "end" && !errors.Is(err, io.EOF) || want != "end" && (err != nil || got != want) {
			t.Fatalf("got %q, %v, want %s", got, err, want)
		}
	}
	f.must(201, "POST", widgetsAt, widget("one", `,"spec":{"size":"L"}`))
	watched, byMessages := watch(widgetsAt+"?watch=true&allowWatchBookmarks=true"), json.NewDecoder(f.socket(t, widgetsAt+"?watch=true", "application/json"))
	next(watched, "ADDED one") // the field is not known
	next(watched, "BOOKMARK")
	next(byMessages, "ADDED one")

	change := func(old *resource.Def, text string, ending bool) *resource.Def {
		t.Helper()
		k := compiled(t, text)
		k.Replaces, k.Ending = old, ending
		d := custom.Define(k).Def
		f.SetDefs(append(api.All(), d))
		return d
	}
	sized := strings.Replace(widgets, "replicas: {type: integer, minimum: 0}", "size: {type: string}", 1)
	second := change(first, sized, false)
	next(watched, "BOOKMARK") // from which its client goes on
	next(watched, "end")
	next(byMessages, "end")
	f.must(201, "POST", widgetsAt, widget("two", `,"spec":{"size":"M"}`))
	watched = watch(widgetsAt + "?watch=true&fieldSelector=metadata.name%3Dtwo")
	next(watched, "ADDED two M")

	second = change(second, strings.Replace(sized, "generation: 1", "generation: 2", 1), false) // nothing is another
	change(second, sized, true)
	f.must(200, "DELETE", widgetsAt+"/two", "")
	next(watched, "DELETED two M")
	f.SetDefs(api.All())
	next(watched, "end")
}

// TestReplacedDefinitionKeepsWhatIsTheSame replaces a definition by one with another column.
func TestReplacedDefinitionKeepsWhatIsTheSame(t *testing.T) {
	first := custom.Define(compiled(t, widgets)).Def
	f := newFixture(t, serves(first))
	f.must(201, "POST", widgetsAt, widget("one", `,"spec":{}`))
	before := f.routes.Load()
	k := compiled(t, strings.Replace(widgets, "{name: Color, type: string, jsonPath: .spec.color}", "{name: Copies, type: integer, jsonPath: .spec.replicas}", 1))
	k.Replaces = first
	f.SetDefs(append(api.All(), custom.Define(k).Def))
	after := f.routes.Load()
	if before.lookup("example.com", "v2", "widgets") != after.lookup("example.com", "v2", "widgets") {
		t.Error("a version that is the same is served anew")
	}
	if before.lookup("example.com", "v1", "widgets") == after.lookup("example.com", "v1", "widgets") {
		t.Error("a version that is another is served as before")
	}
	table := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "GET", widgetsAt, http.NoBody)
	r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	f.Handler().ServeHTTP(table, r)
	if !strings.Contains(table.Body.String(), `"name":"Copies"`) || !strings.Contains(table.Body.String(), `"name":"one"`) {
		t.Errorf("got %s, want the object with the new column", table.Body)
	}
}

// TestKindsAtRunTimeAreReachedOverHTTPS asks as other processes of a cluster do.
func TestKindsAtRunTimeAreReachedOverHTTPS(t *testing.T) {
	kind := custom.Define(compiled(t, widgets))
	f := newFixture(t, serves(kind.Def))
	api := f.remote(t, "far/1")
	things := client.For(api, kind)
	o := custom.New("example.com/v1", "Widget")
	o.Namespace, o.Name = "default", "one"
	o.SetBody(map[string]any{"spec": map[string]any{"replicas": int64(2)}})
	if _, err := things.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	got, err := things.Get(t.Context(), "default", "one")
	if err != nil || got.Body()["spec"].(map[string]any)["color"] != "red" {
		t.Fatalf("get: got %v, %v", got, err)
	}
	all, err := things.List(t.Context(), "", metav1.ListOptions{})
	if err != nil || len(all) != 1 || all[0].Version() != "v1" {
		t.Errorf("list: got %v, %v", all, err)
	}
	objects, release := api.Hold(kind.Def, "")
	defer release()
	select {
	case <-objects.Synced():
	case <-t.Context().Done():
		t.Fatal("the cache has no state")
	}
	if it := objects.Get("default/one"); it == nil || it.Object.GetUID() != got.UID {
		t.Errorf("cached: got %v", it)
	}
}
