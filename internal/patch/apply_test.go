package patch

import (
	"encoding/json"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/resource"
)

// document returns what a user might apply to get an object like obj: parts of it.
func document(t *testing.T, f *Fields, r *rand.Rand, d *resource.Def, obj resource.Object) *unstructured.Unstructured {
	t.Helper()
	data, err := json.Marshal(canonical(t, d, obj))
	if err != nil {
		t.Fatal(err)
	}
	doc := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &doc); err != nil {
		t.Fatal(err)
	}
	thin(r, doc)
	if n, err := f.node(d, d.GVK().GroupVersion()); err == nil {
		complete(n, doc)
	}
	u := &unstructured.Unstructured{Object: doc}
	u.SetGroupVersionKind(d.GVK())
	u.SetManagedFields(nil)
	u.SetUID("")
	u.SetName("n")
	return u
}

// complete fills in what is missing in values that are owned as wholes, or
// drops them: the library compares them with what Go objects show, where
// required fields are null or zero.
func complete(n *node, doc map[string]any) {
	for k, v := range doc {
		elem := n.elem
		if f := n.field(k); f != nil {
			elem = f.node
		}
		switch {
		case elem == nil, v == nil && n.field(k) != nil && n.field(k).null:
			continue
		case v == nil:
			delete(doc, k)
			continue
		}
		if elem.shape == leafShape {
			fresh := reflect.New(elem.typ).Interface()
			data, _ := json.Marshal(v)
			_ = json.Unmarshal(data, fresh)
			data, _ = json.Marshal(fresh)
			var back any
			_ = kjson.UnmarshalCaseSensitivePreserveInts(data, &back)
			if doc[k] = back; strings.Contains(string(data), "null") {
				delete(doc, k)
			}
			continue
		}
		items, ok := v.([]any)
		if !ok {
			items, elem = []any{v}, &node{elem: elem}
		}
		for _, it := range items {
			if m, ok := it.(map[string]any); ok {
				complete(elem.elem, m)
			}
		}
	}
}

// thin drops some members.
func thin(r *rand.Rand, doc map[string]any) {
	for _, k := range slices.Sorted(maps.Keys(doc)) {
		v := doc[k]
		if r.Intn(8) == 0 {
			delete(doc, k)
			continue
		}
		thinValue(r, v)
	}
}

func thinValue(r *rand.Rand, v any) {
	switch v := v.(type) {
	case map[string]any:
		thin(r, v)
	case []any:
		for i := range v {
			if m, ok := v[i].(map[string]any); ok && r.Intn(3) == 0 {
				for _, k := range slices.Sorted(maps.Keys(m)) {
					x := m[k]
					if _, scalar := docScalar(x); !scalar {
						thinValue(r, x)
					}
					if x == nil {
						delete(m, k)
					}
				}
			}
		}
	}
}

func TestApplyEqualsTheLibrarys(t *testing.T) {
	f := NewFields()
	for _, d := range api.All() {
		if !d.Stored() {
			continue
		}
		t.Run(d.String(), func(t *testing.T) {
			r := chance(t)
			ours, all := 0, 0
			for range 25 {
				live := d.New()
				live.SetName("n")
				base := random(d, r)
				for range 4 {
					w := Write{Def: d, GV: d.GVK().GroupVersion(), Manager: []string{"one", "two"}[r.Intn(2)], Force: r.Intn(3) > 0}
					next := canonical(t, d, base)
					if r.Intn(2) == 0 {
						mix(r, reflect.ValueOf(next).Elem(), reflect.ValueOf(random(d, r)).Elem())
					}
					doc := document(t, f, r, d, next)
					want, wantErr := f.applyByLibrary(w, live, doc.DeepCopy())
					got, err := f.apply(w, live, doc.DeepCopy())
					if wantErr == nil {
						all++
					}
					if err == nil {
						ours++
						compareApplied(t, applied{w, live, got, want, doc, wantErr})
					}
					if wantErr != nil {
						continue
					}
					live = want
					live.SetUID("u")
					live = canonical(t, d, live)
					untype(live)
				}
			}
			t.Logf("%d of %d without the library", ours, all)
			if all == 0 || ours < all/5 { // usually it is half of them
				t.Errorf("only %d of %d documents were applied without the library", ours, all)
			}
		})
	}
}

func untype(obj resource.Object) { obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) }

type applied struct {
	w             Write
	live, got, up resource.Object
	doc           *unstructured.Unstructured
	err           error
}

func compareApplied(t *testing.T, a applied) {
	t.Helper()
	if a.err != nil {
		if strings.Contains(a.err.Error(), "duplicate entries for key") {
			return // within a value that is owned as a whole: the kind's validation looks at it
		}
		t.Fatalf("the library refuses: %v\n%v", a.err, a.doc)
	}
	g, x := describe(a.got), describe(a.up)
	if g != x {
		t.Fatalf("%v by %s:\n got %s\nwant %s", a.w.GV, a.w.Manager, g, x)
	}
	show := func(obj resource.Object) string {
		obj = obj.DeepCopyObject().(resource.Object)
		obj.SetManagedFields(nil)
		untype(obj)
		a.w.Def.Default(obj)
		for _, set := range []func(string){obj.SetName, obj.SetNamespace, obj.SetSelfLink, obj.SetResourceVersion} {
			set("")
		}
		obj.SetGeneration(0)
		obj.SetUID("")
		obj.SetCreationTimestamp(a.live.GetCreationTimestamp())
		b, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if g, x := show(a.got), show(a.up); g != x {
		doc, _ := json.Marshal(a.doc)
		t.Fatalf("%v by %s:\nlive %s\n doc %s\n got %s\nwant %s", a.w.GV, a.w.Manager, show(a.live), doc, g, x)
	}
}

// TestAppliesWhatGoWritesOfAConditionWithoutTheLibrary has a condition as a client
// in Go writes it: a time that is not set is null.
func TestAppliesWhatGoWritesOfAConditionWithoutTheLibrary(t *testing.T) {
	f, d := NewFields(), podDef()
	live := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	w := Write{Def: d, GV: d.GVK().GroupVersion(), Manager: "one"}
	f.Update(w, nil, live)
	live.UID = "u"
	live.Status.Conditions = []corev1.PodCondition{
		{Type: "Ready", Status: "True", LastProbeTime: metav1.Unix(1, 0)}, {Type: "Other", Status: "True", LastProbeTime: metav1.Unix(1, 0)},
	}
	w.Manager, w.Sub, w.Force = "two", "status", true
	doc := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "n"},
		"status": map[string]any{"conditions": []any{
			map[string]any{"type": "Mine", "status": "True", "lastProbeTime": nil, "lastTransitionTime": "2024-01-02T03:04:05Z"},
			map[string]any{"type": "Ready", "status": "False", "lastProbeTime": nil},
		}},
	}}
	want, wantErr := f.applyByLibrary(w, live, doc.DeepCopy())
	got, err := f.apply(w, live, doc)
	if err != nil {
		t.Fatal(err)
	}
	compareApplied(t, applied{w, live, got, want, doc, wantErr})
}
