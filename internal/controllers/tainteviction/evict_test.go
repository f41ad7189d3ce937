package tainteviction_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/store/mem"
)

// TestPodsThatChangeMeanwhileAreEvictedAtOnce has somebody write to a pod without a break, as a node
// agent may that reports how it is: the pod is marked and deleted once all the same.
func TestPodsThatChangeMeanwhileAreEvictedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sim.Plane(t, plane.Options{Store: sim.NewSlow(mem.New(mem.Options{}), rand.Uint64())})
		nodes, pods := client.For(p.Admin(), core.Nodes), client.For(p.Admin(), core.Pods)
		if _, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			_, err := pods.Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i)},
				Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		taint := client.Patch{Type: "application/merge-patch+json", Data: []byte(`{"spec":{"taints":[{"key":"k","effect":"NoExecute"}]}}`)}
		if _, err := nodes.Patch(t.Context(), "", "n", "", taint); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for n := range 50 {
					note := client.Patch{Type: "application/merge-patch+json", Data: fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, n)}
					if _, err := pods.Patch(t.Context(), "default", fmt.Sprint("p", i), "", note); err != nil && !apierrors.IsNotFound(err) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute)
		told := 0
		for _, e := range client.Cached(p.Admin(), core.Events, "").List("default", nil) {
			if e.Reason == "TaintManagerEviction" {
				told += int(max(e.Count, 1))
			}
		}
		if told != 20 {
			t.Errorf("got %d events of evictions, want one for each of 20 pods", told)
		}
		for _, pod := range client.Cached(p.Admin(), core.Pods, "").List("default", nil) {
			if pod.DeletionTimestamp == nil {
				t.Errorf("pod %s is still there", pod.Name)
			}
		}
	})
}
