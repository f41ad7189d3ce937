package patch

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
)

const podDocument = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n","labels":{"a":"b"},"finalizers":["x/y","x/z"]},"spec":{"containers":[` +
	`{"name":"c","image":"i","ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":80,"protocol":"UDP"}],"env":[{"name":"A","value":"1"}]},{"name":"d","image":"i"}],` +
	`"tolerations":[{"key":"k","operator":"Exists"}],"nodeSelector":{"a":"b"}},"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2024-01-02T03:04:05Z"}]}}`

// FuzzPatches holds patches of documents against the libraries as upstream's
// server calls them: what one accepts the other does, with the same outcome.
func FuzzPatches(f *testing.F) {
	for _, p := range []string{
		`{"metadata":{"labels":{"a":null,"c":"d"}}}`, `{"spec":{"containers":[{"name":"c","image":"j"},{"$patch":"delete","name":"d"}]}}`, `{"spec":{"$retainKeys":["containers"],"nodeSelector":null}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"c"}],"containers":[{"name":"c","$patch":"replace"}]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["x/y"]}}`,
		`{"$patch":"replace","kind":"Pod"}`, `[{"op":"replace","path":"/spec/containers/0/image","value":"j"},{"op":"test","path":"/kind","value":"Pod"}]`, `[{"op":"copy","from":"/spec","path":"/status/x"},{"op":"move","from":"/kind","path":"/~1~0"}]`,
		`[{"op":"remove","path":"/spec/containers/-1"},{"op":"add","path":"/spec/containers/-","value":null}]`, `null`, `{}`, `[]`, `{"spec":null}`, `{"spec":9007199254740993}`,
	} {
		f.Add([]byte(podDocument), []byte(p))
	}
	f.Fuzz(func(t *testing.T, doc, p []byte) {
		if !json.Valid(doc) || !strings.HasPrefix(string(doc), "{") || len(doc)+len(p) > 16<<10 {
			return // the document is ours
		}
		got, err := Strategic(doc, p, corev1.Pod{})
		want, wantErr := strategicpatch.StrategicMergePatch(doc, p, corev1.Pod{})
		same(t, "strategic merge patch", outcome{got, err}, outcome{want, wantErr})
		got, err = Merge(doc, p)
		want, wantErr = jsonpatch.MergePatch(doc, p)
		var probe map[string]any
		if json.Unmarshal(p, &probe) == nil && probe != nil { // others are refused as upstream's server does it
			same(t, "merge patch", outcome{got, err}, outcome{want, wantErr})
		}
		got, err = JSON(doc, p)
		if list, listErr := jsonpatch.DecodePatch(p); listErr == nil && len(list) <= maxOperations {
			want, wantErr = list.Apply(doc)
			same(t, "JSON patch", outcome{got, err}, outcome{want, wantErr})
		}
	})
}

type outcome struct {
	doc []byte
	err error
}

func same(t *testing.T, what string, got, want outcome) {
	t.Helper()
	if (got.err == nil) != (want.err == nil) {
		t.Fatalf("%s: got %s, %v, want %s, %v", what, got.doc, got.err, want.doc, want.err)
	}
	if got.err != nil {
		return
	}
	// As floats: the library rounds what we do not.
	var a, b any
	if err := json.Unmarshal(got.doc, &a); err != nil {
		t.Fatalf("%s: got %s: %v", what, got.doc, err)
	}
	if err := json.Unmarshal(want.doc, &b); err == nil && !reflect.DeepEqual(a, b) {
		t.Fatalf("%s: got %s, want %s", what, got.doc, want.doc)
	}
}

func podDef() *resource.Def {
	for _, d := range api.All() {
		if d == core.Pods.Def {
			return d
		}
	}
	panic("pods are no kind")
}

// FuzzApply applies a first document and then a second one, by another manager:
// what our code does on Go objects the library does, too.
func FuzzApply(f *testing.F) {
	for _, p := range []string{
		podDocument, `{"metadata":{"name":"n"},"spec":{"containers":[{"name":"d","image":"i"},{"name":"c","image":"i"}]}}`, `{"metadata":{"finalizers":["x/z","x/y"]}}`,
		`{"spec":{"containers":[{"name":"c","ports":[{"containerPort":80},{"containerPort":81}]}],"tolerations":[]}}`, `{"spec":{"nodeSelector":{},"overhead":{"cpu":"1000m"}}}`,
		`{"status":{"conditions":[{"type":"Ready","lastProbeTime":null,"status":"True"},{"type":"Other","status":"True","lastProbeTime":"2024-01-02T03:04:05Z"}]}}`,
		`{"metadata":{"labels":{"a":""},"annotations":null},"spec":{"hostNetwork":false}}`, `{"spec":{"containers":[{"name":"c","env":[{"name":"A"},{"name":"A"}]}]}}`,
	} {
		f.Add([]byte(podDocument), []byte(p), true)
	}
	keeper, def := NewFields(), podDef()
	f.Fuzz(func(t *testing.T, first, second []byte, force bool) {
		live := def.New()
		for i, doc := range [][]byte{first, second} {
			u := &unstructured.Unstructured{}
			if kjson.UnmarshalCaseSensitivePreserveInts(doc, &u.Object) != nil || u.Object == nil || hasNull(u.Object) {
				return
			}
			if _, ok := u.Object["metadata"].(map[string]any); !ok {
				return
			}
			u.SetGroupVersionKind(def.GVK())
			u.SetManagedFields(nil)
			u.SetUID("")
			u.SetName("n")
			w := Write{Def: def, GV: def.GVK().GroupVersion(), Manager: []string{"one", "two"}[i], Force: force}
			want, wantErr := keeper.applyByLibrary(w, live, u.DeepCopy())
			if got, err := keeper.apply(w, live, u.DeepCopy()); err == nil {
				compareApplied(t, applied{w, live, got, want, u, wantErr})
			}
			if wantErr != nil {
				return
			}
			live = canonical(t, def, want)
			untype(live)
			live.SetUID("u")
		}
	})
}

// hasNull reports a null within a document: what values that are owned as wholes
// show of it differs between a document and a Go object. Those of a condition's times
// are none: a Go object shows them.
func hasNull(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for k, x := range v {
			if hasNull(x) && (x != nil || k != "lastProbeTime") {
				return true
			}
		}
	case []any:
		for _, x := range v {
			if hasNull(x) {
				return true
			}
		}
	}
	return false
}

// FuzzOwnership has two managers write any objects, one after the other.
func FuzzOwnership(f *testing.F) {
	f.Add([]byte(`{}`), []byte(podDocument), "")
	f.Add([]byte(podDocument), []byte(`{"metadata":{"name":"n","labels":{"a":"c"}},"spec":{"containers":[{"name":"d","image":"k"},{"name":"e"}]}}`), "")
	f.Add([]byte(podDocument), []byte(`{"metadata":{"name":"n"},"status":{"conditions":[{"type":"Other"},{"type":"Ready","lastTransitionTime":"2024-01-02T03:04:06Z"}]}}`), "status")
	keeper, def := NewFields(), podDef()
	f.Fuzz(func(t *testing.T, first, second []byte, sub string) {
		live := def.New()
		for i, doc := range [][]byte{first, second} {
			obj := def.New()
			if kjson.UnmarshalCaseSensitivePreserveInts(doc, obj) != nil {
				return
			}
			obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			obj.SetManagedFields(live.GetManagedFields())
			if obj = canonical(t, def, obj); i == 1 {
				obj.SetUID("u")
			} else {
				obj.SetUID("")
			}
			w := Write{Def: def, GV: def.GVK().GroupVersion(), Manager: []string{"one", "two"}[i]}
			if i == 1 && sub == "status" {
				w.Sub = sub
			}
			got, want := obj.DeepCopyObject().(resource.Object), obj.DeepCopyObject().(resource.Object)
			err := keeper.update(w, live, got)
			m, mErr := keeper.manager(w)
			if mErr != nil {
				t.Fatal(mErr)
			}
			if _, mErr = m.Update(live, want, w.Manager); mErr != nil {
				return
			}
			if err == nil {
				compare(t, w, got, want)
			}
			live = want
			live.SetUID("u")
		}
	})
}
