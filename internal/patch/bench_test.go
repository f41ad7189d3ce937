package patch

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/resource"
)

// BenchmarkOwnership measures what the field managers of a pod cost a write of
// its status and an apply that changes nothing, by our code and by the library.
func BenchmarkOwnership(b *testing.B) {
	f := NewFields()
	w := Write{Manager: "kubelet", Sub: "status"}
	for _, d := range api.All() {
		if d.Kind == "Pod" {
			w.Def, w.GV = d, d.GVK().GroupVersion()
		}
	}
	doc := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a", "namespace": "b", "labels": map[string]any{"x": "y"}},
		"spec": map[string]any{"containers": []any{
			map[string]any{"name": "c0", "image": "app:1"}, map[string]any{"name": "c1", "image": "app:1"},
		}},
	}}
	applying := Write{Def: w.Def, GV: w.GV, Manager: "one"}
	live, err := f.applyByLibrary(applying, w.Def.New(), doc.DeepCopy())
	if err != nil {
		b.Fatal(err)
	}
	live.SetUID("u")
	live.GetObjectKind().SetGroupVersionKind(w.GV.WithKind(""))
	obj := live.DeepCopyObject().(*corev1.Pod)
	for i := range 4 {
		obj.Status.Conditions = append(obj.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodConditionType(fmt.Sprint(i)), Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1_700_000_000, 0)})
	}
	run := func(name string, one func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := one(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	entries := live.GetManagedFields()
	fresh := func() resource.Object { obj.SetManagedFields(entries); return obj }
	run("update", func() error { return f.update(w, live, fresh()) })
	run("update by the library", func() error { f.updateByLibrary(w, live, fresh()); return nil })
	run("apply", func() error { _, err := f.apply(applying, live, doc); return err })
	run("apply by the library", func() error { _, err := f.applyByLibrary(applying, live, doc.DeepCopy()); return err })
}

// BenchmarkSets measures what a change of a pod's address costs the set of the manager
// who writes its status.
func BenchmarkSets(b *testing.B) {
	before := []byte(`{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},` +
		`"k:{\"type\":\"Initialized\"}":{".":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},` +
		`"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"10.1.0.1\"}":{".":{},"f:ip":{}}},"f:startTime":{}}}`)
	ch := change{
		set:     `"f:status":{"f:podIP":{},"f:podIPs":{"k:{\"ip\":\"10.1.0.2\"}":{".":{},"f:ip":{}}}}`,
		removed: `"f:status":{"f:podIPs":{"k:{\"ip\":\"10.1.0.1\"}":{".":{},"f:ip":{}}}}`,
	}
	w := &setWriter{}
	for name, change := range map[string]func() ([]byte, error){
		"written":        func() ([]byte, error) { return w.after(before, ch, true) },
		"by the library": func() ([]byte, error) { return afterSet(before, ch, true) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := change(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
