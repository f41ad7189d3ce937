package apiserver

import (
	"fmt"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestPatchOfAScaleNamesNoRevision scales by patches while others write the same
// object: a patch that names no revision is not refused because of them.
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
	var wg sync.WaitGroup
	for writer := range 4 {
		for sub, format := range map[string]string{"scale": `{"spec":{"replicas":%d}}`, "": `{"metadata":{"labels":{"n":"%d"}}}`} {
			wg.Go(func() {
				for n := range 50 {
					_, err := api.Do(t.Context(), &client.Request{
						Verb: "patch", Def: apps.ReplicaSets.Def, Sub: sub, Namespace: "default", Name: "web",
						Patch: fmt.Appendf(nil, format, writer*100+n), PatchType: types.MergePatchType,
					})
					if err != nil {
						t.Errorf("patch of %q: %v", sub, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}
