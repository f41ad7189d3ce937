package apiserver

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/patch"
	"github.com/kemudi/kemudi/internal/resource"
)

// TestManyWritersKeepFieldsOfOneObject has writers start from one object of the cache, as
// they do when many are faster than each other. It stands here, as the tests of package
// patch run without the race detector.
func TestManyWritersKeepFieldsOfOneObject(t *testing.T) {
	t.Parallel()
	fields := patch.NewFields()
	w := patch.Write{Def: core.Pods.Def, GV: core.Pods.Def.GVK().GroupVersion(), Manager: "first"}
	live := realPod(0)
	fields.Update(w, nil, live)
	live.UID = "u"
	stored := live.DeepCopy()
	const writers = 8
	var updated, applied, patched [writers]resource.Object
	one := func(i int) error {
		w := w
		w.Manager, w.Sub, w.Force = fmt.Sprintf("writer-%d", i%2), "status", true
		next := live.DeepCopy()
		setStatus(next, i%2)
		fields.Update(w, live, next)
		updated[i] = next
		obj, err := fields.Apply(w, live, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": live.Name, "namespace": live.Namespace},
			"status": map[string]any{"conditions": []any{map[string]any{"type": fmt.Sprint(i % 2), "status": "True", "lastProbeTime": nil}}},
		}})
		if err != nil {
			return err
		}
		applied[i] = obj
		part := patch.PartOf(live, []byte(`{"status":{}}`))
		to := part.Named().DeepCopyObject().(*corev1.Pod)
		setStatus(to, i%2)
		part.Complete(to)
		to.Labels["writer"] = fmt.Sprint(i % 2) // what it is given is its own
		patched[i] = to
		return nil
	}
	var wg sync.WaitGroup
	errs := make(chan error, writers) // one of each
	for i := range writers {
		wg.Go(func() { errs <- one(i) })
	}
	wg.Wait()
	for range writers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if !equality.Semantic.DeepEqual(live, stored) {
		t.Errorf("the object that all started from has changed: got %+v, want %+v", live, stored)
	}
	for i := range writers {
		for what, objs := range map[string][writers]resource.Object{"updated": updated, "applied": applied, "patched": patched} {
			if !equality.Semantic.DeepEqual(timeless(objs[i]), timeless(objs[i%2])) {
				t.Errorf("writer %d %s: got %+v, want %+v as the first of this name", i, what, objs[i], objs[i%2])
			}
		}
	}
}

// timeless is the object without the times of its managers.
func timeless(obj resource.Object) resource.Object {
	obj = obj.DeepCopyObject().(resource.Object)
	entries := obj.GetManagedFields()
	for i := range entries {
		entries[i].Time = &metav1.Time{}
	}
	obj.SetManagedFields(entries)
	return obj
}
