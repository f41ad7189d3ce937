package apiserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestPatchOfAScaleNamesNoRevision scales by patches while others write the same
// object: a patch that names no revision is not refused because of them, and none
// is lost.
func TestPatchOfAScaleNamesNoRevision(t *testing.T) {
	t.Parallel()
	trace.Proves(t, "C-014")
	f := newFixture(t)
	api := f.As(admin, "test")
	sets := client.For(api, apps.ReplicaSets)
	labels := map[string]string{"app": "web"}
	_, err := sets.Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 4, 20
	var mu sync.Mutex
	revisions := map[string]bool{}
	var wg sync.WaitGroup
	for writer := range writers {
		for sub, format := range map[string]string{"scale": `{"spec":{"replicas":%d}}`, "": `{"metadata":{"labels":{"n":"%d"}}}`} {
			wg.Go(func() {
				for n := range each {
					want := int32(writer*100 + n + 2) // never what it is already
					answer, err := api.Do(t.Context(), &client.Request{
						Verb: "patch", Def: apps.ReplicaSets.Def, Sub: sub, Namespace: "default", Name: "web",
						Patch: fmt.Appendf(nil, format, want), PatchType: types.MergePatchType,
					})
					if err != nil {
						t.Errorf("patch of %q: %v", sub, err)
						return
					}
					if got := patched(answer); got != strconv.Itoa(int(want)) {
						t.Errorf("patch of %q to %d: answered %s", sub, want, got)
					}
					mu.Lock()
					revisions[answer.(metav1.Object).GetResourceVersion()] = true
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	if len(revisions) != 2*writers*each {
		t.Errorf("%d patches made %d revisions, want one each", 2*writers*each, len(revisions))
	}
	set, err := sets.Get(t.Context(), "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	if set.Generation != 1+writers*each { // labels are not desired state
		t.Errorf("got generation %d after %d changes of the replicas", set.Generation, writers*each)
	}
	isLast := func(n int) bool { return n < writers*100 && n%100 == each+1 }
	label, err := strconv.Atoi(set.Labels["n"])
	if err != nil || !isLast(label) || !isLast(int(*set.Spec.Replicas)) {
		t.Errorf("got label %q and %d replicas, want what one of the writers wrote last", set.Labels["n"], *set.Spec.Replicas)
	}
}

// patched is what a patch has made of the field that it is about.
func patched(answer runtime.Object) string {
	if scale, ok := answer.(*autoscalingv1.Scale); ok {
		return strconv.Itoa(int(scale.Spec.Replicas))
	}
	return answer.(*appsv1.ReplicaSet).Labels["n"]
}

func TestScaleIsShownAsATable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.must(201, "POST", "/apis/apps/v1/namespaces/default/replicasets", `{"metadata":{"name":"web"},"spec":{"replicas":3,
		"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	for include, object := range map[string]string{"": "PartialObjectMetadata", "Object": "Scale", "None": ""} {
		var table metav1.Table
		body := f.must(200, "GET", "/apis/apps/v1/namespaces/default/replicasets/web/scale?includeObject="+include, "",
			"Accept: application/json;as=Table;g=meta.k8s.io;v=v1")
		if err := json.Unmarshal([]byte(body), &table); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range table.ColumnDefinitions {
			names = append(names, c.Name+" "+c.Type)
		}
		if want := []string{"Name string", "Desired integer", "Available integer", "Age string"}; !slices.Equal(names, want) {
			t.Errorf("columns: got %q, want %q", names, want)
		}
		if len(table.Rows) != 1 || table.Rows[0].Cells[0] != "web" || table.Rows[0].Cells[1] != 3.0 || table.Rows[0].Cells[2] != 0.0 {
			t.Fatalf("got rows %+v", table.Rows)
		}
		var meta metav1.TypeMeta
		if err := json.Unmarshal([]byte(cmp.Or(string(table.Rows[0].Object.Raw), "{}")), &meta); err != nil || meta.Kind != object {
			t.Errorf("includeObject=%s: got a %q, %v, want %q", include, meta.Kind, err, object)
		}
	}
}
