package wire

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kemudi/kemudi/internal/layout"
)

// messageOf is the bytes of an object but for what Differ passes over.
func messageOf(t *testing.T, v any) []byte {
	t.Helper()
	if m, ok := v.(metav1.Object); ok {
		m.SetResourceVersion("")
		m.SetSelfLink("")
		m.SetManagedFields(nil)
	}
	data, err := AppendProtoBody(nil, v.(Proto))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWhatDiffersHasOtherBytes(t *testing.T) {
	seed := int64(rand.Uint64())
	t.Logf("seed %d", seed)
	differ, same := 0, 0
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		f := filler(seed)
		for range 20 {
			a, b := reflect.New(typ).Interface(), reflect.New(typ).Interface()
			f.Fill(a)
			if _, ok := a.(Proto); !ok {
				break
			}
			Canonical(a)
			data, err := AppendProtoBody(nil, a.(Proto))
			if err != nil || b.(Proto).Unmarshal(data) != nil {
				continue // no such object is stored
			}
			keepKinds(reflect.ValueOf(b).Elem(), reflect.ValueOf(a).Elem())
			if Differ(a, b) {
				t.Fatalf("%v: an object differs from what comes back from its bytes: %+v, %+v", gvk, a, b)
			}
			same++
			f.Fill(b)
			Canonical(b)
			if got := Differ(a, b); got && bytes.Equal(messageOf(t, a), messageOf(t, b)) {
				t.Fatalf("%v: objects differ whose bytes are the same: %+v, %+v", gvk, a, b)
			} else if got {
				differ++
			}
		}
	}
	if !layout.Library && (differ < 100 || same < 100) {
		t.Errorf("%d objects differed and %d did not, want 100 of each", differ, same)
	}
}

func TestChangesOfAStatusAreSeen(t *testing.T) {
	if layout.Library {
		t.Skip("nothing is seen at a glance")
	}
	for name, change := range map[string]func(*corev1.Pod){
		"a text":      func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" },
		"a time":      func(p *corev1.Pod) { p.Status.Conditions[3].LastTransitionTime.Time = p.CreationTimestamp.Add(1e9) },
		"a list":      func(p *corev1.Pod) { p.Status.Conditions = p.Status.Conditions[:3] },
		"a pointer":   func(p *corev1.Pod) { p.Status.StartTime = &p.CreationTimestamp },
		"a label":     func(p *corev1.Pod) { p.Labels["x"] = "z" },
		"no revision": nil,
	} {
		a, b := usualPod(), usualPod()
		b.ResourceVersion, b.ManagedFields = "9", nil
		if change != nil {
			change(b)
		}
		if got := Differ(a, b); got != (change != nil) {
			t.Errorf("%s: got %v, want %v", name, got, change != nil)
		}
	}
}
