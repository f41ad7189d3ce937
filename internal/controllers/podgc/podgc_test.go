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

// finished is a control plane whose default namespace has pods that end.
type finished struct {
	t    *testing.T
	pods client.Client[*corev1.Pod]
}

func newFinished(t *testing.T, o podgc.Options) finished {
	p := sim.Plane(t, plane.Options{Controllers: controllers.Options{PodGC: o}})
	return finished{t, client.For(p.Admin(), core.Pods)}
}

// end creates a pod in a phase, and lets a minute pass.
func (f finished) end(name string, phase corev1.PodPhase, reason string) {
	f.t.Helper()
	_, err := f.pods.Create(f.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	// A patch, because the scheduler writes the status as well.
	patch := client.Patch{Type: types.MergePatchType, Data: fmt.Appendf(nil, `{"status":{"phase":%q,"reason":%q}}`, phase, reason)}
	if _, err := f.pods.Patch(f.t.Context(), "default", name, "status", patch); err != nil {
		f.t.Fatal(err)
	}
	time.Sleep(time.Minute)
}

func (f finished) want(names ...string) {
	f.t.Helper()
	list, err := f.pods.List(f.t.Context(), "default", metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	var got []string
	for _, p := range list {
		got = append(got, p.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, names) {
		f.t.Errorf("got pods %q, want %q", got, names)
	}
}

// TestFinishedPodsBeyondTheThresholdGo also shows the order: evicted ones first,
// then the oldest; pods that have not finished do not count.
func TestFinishedPodsBeyondTheThresholdGo(t *testing.T) {
	trace.Proves(t, "PLC-066", "PLC-067")
	synctest.Test(t, func(t *testing.T) {
		f := newFinished(t, podgc.Options{Threshold: 3})
		for i := range 3 {
			f.end(fmt.Sprintf("done-%d", i), corev1.PodSucceeded, "")
			f.end(fmt.Sprintf("runs-%d", i), corev1.PodRunning, "")
		}
		time.Sleep(24 * time.Hour)
		f.want("done-0", "done-1", "done-2", "runs-0", "runs-1", "runs-2")
		f.end("failed", corev1.PodFailed, "")
		f.want("done-1", "done-2", "failed", "runs-0", "runs-1", "runs-2")
		f.end("evicted", corev1.PodFailed, "Evicted")
		f.want("done-1", "done-2", "failed", "runs-0", "runs-1", "runs-2")
	})
}

func TestFinishedPodsStayWithANegativeThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFinished(t, podgc.Options{Threshold: -1})
		f.end("runs", corev1.PodRunning, "")
		f.end("done", corev1.PodSucceeded, "")
		f.end("failed", corev1.PodFailed, "Evicted")
		time.Sleep(24 * time.Hour)
		f.want("done", "failed", "runs")
	})
}
