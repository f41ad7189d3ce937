package patch

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/resource"
)

// partPatch is a patch of few members of an object: what others have there, or nothing.
func partPatch(t *testing.T, r *rand.Rand, other resource.Object) []byte {
	t.Helper()
	data, err := json.Marshal(other)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &doc); err != nil {
		t.Fatal(err)
	}
	thin(r, doc)
	for k := range doc {
		switch r.Intn(4) {
		case 0:
			doc[k] = nil
		case 1, 2:
			delete(doc, k)
		}
	}
	if data, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestPatchOfAPartIsThatOfTheWhole patches random objects both ways.
func TestPatchOfAPartIsThatOfTheWhole(t *testing.T) {
	patches := map[string]func(doc, patch []byte, example any) ([]byte, error){
		"merge": func(doc, patch []byte, _ any) ([]byte, error) { return Merge(doc, patch) }, "strategic": Strategic,
	}
	for _, d := range api.All() {
		if !d.Stored() {
			continue
		}
		t.Run(d.String(), func(t *testing.T) {
			r := chance(t)
			parts := 0
			for range 30 {
				live := canonical(t, d, random(d, r))
				data := partPatch(t, r, random(d, r))
				before := live.DeepCopyObject()
				for name, apply := range patches {
					whole := d.New()
					if err := patchBy(apply, live, data, whole); err != nil {
						continue
					}
					part := PartOf(live, data)
					if part == nil {
						continue
					}
					got := d.New()
					if err := patchBy(apply, part.Named().(resource.Object), data, got); err != nil {
						t.Fatalf("%s by %s: %v", name, data, err)
					}
					part.Complete(got)
					parts++
					if g, w := shown(t, got), shown(t, whole); g != w {
						t.Fatalf("%s of %s by %s:\n got %s\nwant %s", name, shown(t, live), data, g, w)
					}
				}
				if !reflect.DeepEqual(live, before) {
					t.Fatal("the stored object was changed")
				}
			}
			if parts == 0 {
				t.Error("no patch was applied to a part")
			}
		})
	}
}

func patchBy(apply func(doc, patch []byte, example any) ([]byte, error), from resource.Object, data []byte, to resource.Object) error {
	doc, err := json.Marshal(from)
	if err != nil {
		return err
	}
	out, err := apply(doc, data, to)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(out, to)
}

func shown(t *testing.T, obj resource.Object) string {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAPartIsOnlyOfMembersThatThereAre(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.PodStatus{Message: "m"}}
	for _, text := range []string{
		`{"Status":{}}`, `{"status":{},"$patch":"replace"}`, `{"kind":"Pod","status":{}}`, `{"status":{},"more":1}`, `null`, `[]`, `{`,
	} {
		if PartOf(pod, []byte(text)) != nil {
			t.Errorf("%s was taken for a patch of a part", text)
		}
	}
	if PartOf(&unstructured.Unstructured{Object: map[string]any{}}, []byte(`{}`)) != nil {
		t.Error("a document was taken for an object of parts")
	}
	part := PartOf(pod, []byte(`{"status":{"message":null}}`))
	if part == nil {
		t.Fatal("a patch of a status was taken for one of the whole")
	}
	if named := part.Named().(*corev1.Pod); named.Name != "" || named.Status.Message != "m" {
		t.Errorf("got %+v, want the status alone", named)
	}
	to := &corev1.Pod{}
	if part.Complete(to); to.Name != "n" || to.Status.Message != "" {
		t.Errorf("got %+v, want all but the status", to)
	}
}
