package podgc_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/controllers/podgc"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestFinishedPodsBeyondTheThresholdGo also shows the order: evicted ones first,
// then the oldest; pods that have not finished do not count.
func TestFinishedPodsBeyondTheThresholdGo(t *testing.T) {
	trace.Proves(t, "PLC-066", "PLC-067")
	synctest.Test(t, func(t *testing.T) {
		plane := sim.Plane(t, plane.Options{
			Controllers: controllers.Options{PodGC: podgc.Options{Threshold: 3}},
		})
		pods := client.For(plane.Admin(), core.Pods)
		end := func(name string, phase corev1.PodPhase, reason string) {
			t.Helper()
			_, err := pods.Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			// A patch, because the scheduler writes the status as well.
			patch := client.Patch{Type: types.MergePatchType, Data: fmt.Appendf(nil, `{"status":{"phase":%q,"reason":%q}}`, phase, reason)}
			if _, err := pods.Patch(t.Context(), "default", name, "status", patch); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		left := func() []string {
			list, err := pods.List(t.Context(), "default", metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range list {
				names = append(names, p.Name)
			}
			slices.Sort(names)
			return names
		}
		want := func(names ...string) {
			t.Helper()
			if got := left(); !slices.Equal(got, names) {
				t.Errorf("got pods %q, want %q", got, names)
			}
		}
		for i := range 3 {
			end(fmt.Sprintf("done-%d", i), corev1.PodSucceeded, "")
			end(fmt.Sprintf("runs-%d", i), corev1.PodRunning, "")
		}
		time.Sleep(24 * time.Hour)
		want("done-0", "done-1", "done-2", "runs-0", "runs-1", "runs-2")
		end("failed", corev1.PodFailed, "")
		want("done-1", "done-2", "failed", "runs-0", "runs-1", "runs-2")
		end("evicted", corev1.PodFailed, "Evicted")
		want("done-1", "done-2", "failed", "runs-0", "runs-1", "runs-2")
	})
}
