package wire

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"github.com/kemudi/kemudi/internal/layout"
)

func TestCanonicalObjectsComeBackFromTheirBytesAsTheyAre(t *testing.T) {
	seed := int64(rand.Uint64())
	t.Logf("seed %d", seed)
	mended, all := 0, 0
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		if _, ok := reflect.New(typ).Interface().(Proto); !ok || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		f := filler(seed).Funcs(func(*metav1.TypeMeta, randfill.Continue) {}) // is no part of the messages
		for range 8 {
			obj := reflect.New(typ).Interface().(Proto)
			f.Fill(obj)
			before := obj.(runtime.Object).DeepCopyObject()
			Canonical(obj)
			byLibrary := before.DeepCopyObject().(Proto)
			canonicalByLibrary(byLibrary)
			if got, want := form(t, obj), form(t, byLibrary); !bytes.Equal(got, want) {
				t.Fatalf("%v: got %s, want what the library makes of it: %s", gvk, got, want)
			}
			if all++; !reflect.DeepEqual(before, obj) {
				mended++
			}
			want := form(t, obj)
			data, err := AppendProtoBody(nil, obj)
			if err != nil {
				t.Fatalf("%v: %v", gvk, err)
			}
			back := reflect.New(typ).Interface().(Proto)
			if err := back.Unmarshal(data); err != nil {
				t.Fatalf("%v: %v", gvk, err)
			}
			if got := form(t, back); !bytes.Equal(got, want) || !equality.Semantic.DeepEqual(back, obj) {
				t.Fatalf("%v:\n got %s\nwant %s", gvk, got, want)
			}
			if fix := fixOf(typ); fix != nil && fix(layout.PtrOf(obj)) {
				t.Fatalf("%v: what is canonical was written to again: %s", gvk, want)
			}
		}
	}
	t.Logf("%d of %d objects had another form", mended, all)
	if all < 2000 || mended < all/8 {
		t.Errorf("got %d objects of another form among %d, want an eighth of at least 2000", mended, all)
	}
}

func form(t *testing.T, v any) []byte {
	t.Helper()
	data, err := AppendJSON(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestObjectsWithinOthersKeepTheirKind(t *testing.T) {
	set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: []corev1.PersistentVolumeClaim{
		{TypeMeta: metav1.TypeMeta{Kind: "PersistentVolumeClaim", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{}}},
	}}}
	set.Kind = "StatefulSet"
	Canonical(set)
	if c := set.Spec.VolumeClaimTemplates[0]; set.Kind != "StatefulSet" || c.Kind != "PersistentVolumeClaim" || c.APIVersion != "v1" {
		t.Errorf("got %q with a claim of kind %q in %q, want them as they were", set.Kind, c.Kind, c.APIVersion)
	}
}
