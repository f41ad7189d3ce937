package extend

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/resource"
)

const crontabs = `
metadata: {name: crontabs.stable.example.com, uid: u1, generation: 1}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: crontabs, singular: crontab, kind: CronTab, listKind: CronTabList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}}
    selectableFields: [{jsonPath: .spec.cronSpec}]
    additionalPrinterColumns:
    - {name: Spec, type: string, jsonPath: .spec.cronSpec}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas, priority: 1}
    - {name: Made, type: date, jsonPath: .metadata.creationTimestamp}
    - {name: Broken, type: string, jsonPath: ".spec[" }
    - {name: Never, type: string, jsonPath: .spec.cronSpec}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [cronSpec]
            x-kubernetes-validations:
            - {rule: "self.replicas <= self.most", message: there are too many, fieldPath: .replicas}
            properties:
              cronSpec: {type: string, pattern: '^\S+$'}
              replicas: {type: integer, default: 1, minimum: 0}
              most: {type: integer, default: 5}
              note: {type: string, nullable: true}
              tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
              inner: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object}}}
          status: {type: object, properties: {replicas: {type: integer}, selector: {type: string}}}
  - name: v1beta1
    served: true
    deprecated: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func definition(t *testing.T, text string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(text), crd); err != nil {
		t.Fatal(err)
	}
	crd.Status.AcceptedNames = crd.Spec.Names
	return crd
}

func object(t *testing.T, text string) *custom.Object {
	t.Helper()
	head := `apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: a, namespace: b, creationTimestamp: "2020-01-02T03:04:05Z"}, `
	data, err := yaml.YAMLToJSON([]byte("{" + head + text[1:]))
	var u unstructured.Unstructured
	if err == nil {
		err = u.UnmarshalJSON(data) // whole numbers become int64, as those of requests
	}
	var o *custom.Object
	if err == nil {
		o, err = custom.FromTree(u.Object)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func body(t *testing.T, o *custom.Object) string {
	t.Helper()
	data, err := o.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestObjectIsDefaultedAndPruned(t *testing.T) {
	v := Compile(NewSource(definition(t, crontabs)), nil).Versions[0]
	o := object(t, `{spec: {cronSpec: "x", note: null, most: null, cron: 1, free: {a: {b: 1}}, inner: {apiVersion: v1, kind: A, metadata: {name: in, odd: 1}, spec: {}}}, more: 1}`)
	if got, want := strings.Join(v.Unknown(o), "; "), `unknown field "more"; unknown field "spec.cron"; unknown field "spec.inner.metadata.odd"`; got != want {
		t.Errorf("got unknown %s, want %s", got, want)
	}
	v.Default(o)
	v.Prune(o)
	want := `{"spec":{"cronSpec":"x","free":{"a":{"b":1}},"inner":{"apiVersion":"v1","kind":"A","metadata":{"name":"in"},"spec":{}},"most":5,"note":null,"replicas":1}}`
	if got := body(t, o); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if open := Compile(NewSource(definition(t, crontabs)), nil).Versions[1]; len(open.Unknown(o)) > 0 {
		t.Errorf("got unknown %q where all is kept, want none", open.Unknown(o))
	}
}

func TestObjectIsHeldAgainstSchemaListsAndRules(t *testing.T) {
	v := Compile(NewSource(definition(t, crontabs)), nil).Versions[0]
	for _, tc := range []struct{ name, old, obj, sub, want string }{
		{name: "good", obj: `{spec: {cronSpec: x, replicas: 1, most: 5}}`},
		{name: "missing field", obj: `{spec: {replicas: 1, most: 5}}`,
			want: `spec.cronSpec: Required value; <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation`},
		{name: "pattern", obj: `{spec: {cronSpec: "a b", replicas: 1, most: 5}}`, want: `spec.cronSpec: Invalid value: "a b": spec.cronSpec in body should match '^\S+$'`},
		{name: "rule", obj: `{spec: {cronSpec: x, replicas: 6, most: 5}}`, want: `spec.replicas: Invalid value: there are too many`},
		{name: "set", obj: `{spec: {cronSpec: x, replicas: 1, most: 5, tags: [a, a]}}`, want: `spec.tags[1]: Duplicate value: "a"`},
		{name: "what was wrong and is left so stays", old: `{spec: {cronSpec: "a b", replicas: 1, most: 5}}`, obj: `{spec: {cronSpec: "a b", replicas: 2, most: 5}}`},
		{name: "scale", obj: `{spec: {cronSpec: x, replicas: 1, most: 5}, status: {replicas: -1}}`, want: `.status.replicas: Invalid value: -1: should be a non-negative integer`},
		{name: "status alone", old: `{spec: {cronSpec: x}}`, obj: `{spec: {}, status: {replicas: a}}`, sub: "status",
			want: `status.replicas: Invalid value: "string": replicas in body must be of type integer: "string"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var old *custom.Object
			if tc.old != "" {
				old = object(t, tc.old)
			}
			errs := resource.NewErrors()
			v.Validate(t.Context(), object(t, tc.obj), old, tc.sub, errs)
			var got []string
			for _, e := range errs.List() {
				got = append(got, e.Error())
			}
			if got := strings.Join(got, "; "); tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestColumnsFieldsAndWarnings(t *testing.T) {
	k := Compile(NewSource(definition(t, crontabs)), nil)
	o := object(t, `{spec: {cronSpec: "* 5", replicas: 3}}`)
	var got []any
	for _, c := range k.Versions[0].Columns {
		got = append(got, c.Name, c.Value(o))
	}
	if len(got) != 6 || got[1] != "* 5" || got[3] != int64(3) || !strings.Contains(got[5].(string), "y") {
		t.Errorf("got columns %v, want up to the broken one: the spec, a number, an age", got)
	}
	if got := k.Versions[0].Fields["spec.cronSpec"](o); got != "* 5" {
		t.Errorf("got field %q, want * 5", got)
	}
	if got, want := k.Versions[1].Deprecated, "stable.example.com/v1beta1 CronTab is deprecated; use stable.example.com/v1 CronTab"; got != want {
		t.Errorf("got warning %q, want %q", got, want)
	}
	if c := k.Versions[1].Columns; len(c) != 1 || c[0].Name != "Age" || c[0].Type != "date" {
		t.Errorf("got columns %v where there are none, want the age", c)
	}
}

func TestIdentityIsOfWhatAVersionSays(t *testing.T) {
	a, b := definition(t, crontabs), definition(t, crontabs)
	b.Labels, b.Generation = map[string]string{"a": "b"}, 2
	b.Spec.Versions[1].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "A", Type: "string", JSONPath: ".a"}}
	x, y := Compile(NewSource(a), nil), Compile(NewSource(b), nil)
	if x.ID != y.ID || x.Versions[0].ID != y.Versions[0].ID || x.Versions[1].ID == y.Versions[1].ID {
		t.Error("want the same identity of the kind and of the version that is as it was, another of the changed one")
	}
	b.Spec.Versions[0].Storage, b.Spec.Versions[1].Storage = false, true
	if y = Compile(NewSource(b), nil); x.ID == y.ID {
		t.Error("want another identity where another version is stored")
	}
}

func TestModelsAreForTheirClients(t *testing.T) {
	crd := definition(t, crontabs)
	show := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	three, two := Model(crd, &crd.Spec.Versions[0], OpenAPI3), Model(crd, &crd.Spec.Versions[0], Swagger)
	for _, want := range []string{`"allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]`, `"nullable":true`, `"x-kubernetes-selectable-fields":[{"fieldPath":"spec.cronSpec"}]`} {
		if !strings.Contains(show(three), want) {
			t.Errorf("version 3 has no %s: %s", want, show(three))
		}
	}
	if want := `"x-kubernetes-selectable-fields":[{"fieldPath":"spec.cronSpec"}]`; !strings.Contains(show(two), want) {
		t.Errorf("version 2 has no %s: %s", want, show(two))
	}
	for _, never := range []string{"nullable", "components"} {
		if strings.Contains(show(two), never) {
			t.Errorf("version 2 has %s: %s", never, show(two))
		}
	}
	inner := two.Properties["spec"].Properties["inner"]
	if !slices.Contains(inner.Required, "kind") || !strings.Contains(show(inner), objectMeta) || len(two.Properties["spec"].Properties["free"].Type) > 0 {
		t.Errorf("got %s: want an embedded object with metadata, and no type of what may have all fields", show(two))
	}
	if open := Model(crd, &crd.Spec.Versions[1], Swagger); open.Properties != nil || open.Type[0] != "object" {
		t.Errorf("got %s of what may have all fields, want an object of which nothing is known", show(open))
	}
}

func TestApplyKnowsTheFieldsOfTheSchema(t *testing.T) {
	types := Compile(NewSource(definition(t, crontabs)), nil).Versions[0].Types
	if _, err := types.ObjectToTyped(object(t, `{spec: {cronSpec: x, tags: [a], free: {any: thing}}}`)); err != nil {
		t.Errorf("a good object: %v", err)
	}
	for tree, want := range map[string]string{
		`{unknownField: 1}`:                            ".unknownField: field not declared in schema",
		`{spec: {inner: {metadata: {unknownSub: 1}}}}`: ".spec.inner.metadata.unknownSub: field not declared in schema",
	} {
		if _, err := types.ObjectToTyped(object(t, tree)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
