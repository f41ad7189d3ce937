package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
)

// BenchmarkCompletions runs a Job of 10,000 completions (KEMUDI_COMPLETIONS: of
// as many), 500 at a time, from its creation to its end: the whole control plane,
// on simulated nodes that need no time for a pod. It is here since no test of a
// controller links etcd.
func BenchmarkCompletions(b *testing.B) {
	completions := 10_000
	if s := os.Getenv("KEMUDI_COMPLETIONS"); s != "" {
		var err error
		if completions, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		open func(b *testing.B) store.Store
	}{
		{"memory", func(*testing.B) store.Store { return mem.New(mem.Options{}) }},
		{"etcd", openEtcd},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				o := sim.Options{Store: c.open(b)}
				for i := range 20 {
					o.Nodes = append(o.Nodes, sim.NodeOptions{Name: fmt.Sprintf("n%d", i), CPU: "64", StartAfter: time.Millisecond})
				}
				cl, err := sim.Start(b.Context(), o)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				took := complete(b, cl, int32(completions))
				b.ReportMetric(float64(completions)/took.Seconds(), "completions/s")
				b.StopTimer()
				if err := cl.Stop(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

func openEtcd(b *testing.B) store.Store {
	b.Helper()
	st, err := etcd.New(etcd.Options{Dir: b.TempDir(), Name: "bench", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	g := task.NewGroup(context.WithoutCancel(b.Context())) // until the cleanup: it outlives what uses it
	g.Go("etcd", st.Run)
	b.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
	})
	select {
	case <-st.Ready():
	case <-g.Context().Done():
		b.Fatal(context.Cause(g.Context()))
	}
	return st
}

// complete creates a Job and waits for its end.
func complete(b *testing.B, c *sim.Cluster, completions int32) time.Duration {
	b.Helper()
	began := time.Now()
	_, err := client.For(c.API(), batch.Jobs).Create(b.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "many"},
		Spec: batchv1.JobSpec{
			Parallelism: ptr.To[int32](500), Completions: &completions,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"sim.kemudi.io/exit-after": "1ms"}},
				Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			},
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	err = c.API().Cache(batch.Jobs.Def, "").Each(b.Context(), cache.FollowOptions{}, func(deltas []cache.Delta) error {
		for _, d := range deltas {
			if job := d.Last().Object.(*batchv1.Job); batch.JobFinished(job) != nil {
				if job.Status.Succeeded != completions {
					return fmt.Errorf("got %d succeeded, want %d", job.Status.Succeeded, completions)
				}
				return context.Canceled
			}
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		b.Fatal(err)
	}
	return time.Since(began)
}
