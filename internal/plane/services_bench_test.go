package plane

import (
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
)

// BenchmarkThirtyThousandServices creates as many in one namespace, with all controllers, and says how much
// longer the last five thousand took than the first, until all had their slices. It is five because the garbage of about four
// thousand is collected at once in the end: of one thousand it would depend on whether that falls into it.
func BenchmarkThirtyThousandServices(b *testing.B) {
	for b.Loop() {
		p, err := New(Options{Store: mem.New(mem.Options{}), Logger: slog.New(slog.DiscardHandler), CABundle: "none"})
		if err != nil {
			b.Fatal(err)
		}
		g := task.NewGroup(b.Context())
		g.Go("plane", p.Run)
		select {
		case <-p.Ready():
		case <-g.Context().Done():
			b.Fatal(g.Wait())
		}
		services, slices := client.For(p.Admin(), core.Services), client.Cached(p.Admin(), discovery.EndpointSlices, "")
		var took, worked []time.Duration // by the clock, and of the processor
		for range 30 {
			began, before := time.Now(), processorTime()
			for i := range 1000 {
				name := fmt.Sprintf("s-%d-%d", len(took), i)
				if _, err := services.Create(b.Context(), &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
					Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
				}); err != nil {
					b.Fatal(err)
				}
			}
			ctx, done := context.WithCancel(b.Context())
			_ = slices.Each(ctx, cache.FollowOptions{}, func([]cache.Delta) error { // ends when all are there
				if slices.Len() >= 1000*(len(took)+1) {
					done()
				}
				return nil
			})
			took, worked = append(took, time.Since(began)), append(worked, processorTime()-before)
		}
		first, last := sum(took[:5]), sum(took[25:])
		b.ReportMetric(float64(last)/float64(first), "last/first")
		b.ReportMetric(float64(sum(worked[25:]))/float64(sum(worked[:5])), "last/first-cpu")
		b.ReportMetric(float64(first.Microseconds())/5000, "first-µs/service")
		b.ReportMetric(float64(last.Microseconds())/5000, "last-µs/service")
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

func sum(list []time.Duration) (all time.Duration) {
	for _, d := range list {
		all += d
	}
	return all
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
