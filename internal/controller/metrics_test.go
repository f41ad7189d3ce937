package controller_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/controller"
)

func TestTellsHowLongReconcilesHaveBeenAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		reg := prometheus.NewRegistry()
		env := b.env()
		env.Metrics, env.Manager = controller.NewMetrics(reg), "kube-controller-manager"
		c := controller.New(spec(func(*controller.Kit, controller.Client[*corev1.ConfigMap]) reconcileFunc {
			return func(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				return controller.Done, nil
			}
		}))
		b.background(c.Name, func(ctx context.Context) error { return c.Run(ctx, env) })
		value := func(name string) float64 {
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == name {
					return f.GetMetric()[0].GetGauge().GetValue()
				}
			}
			return -1
		}
		check := func(unfinished, longest float64) {
			t.Helper()
			synctest.Wait()
			if got := value("workqueue_unfinished_work_seconds"); got != unfinished {
				t.Errorf("unfinished work: got %g s, want %g", got, unfinished)
			}
			if got := value("workqueue_longest_running_processor_seconds"); got != longest {
				t.Errorf("longest running: got %g s, want %g", got, longest)
			}
		}
		check(0, 0)
		if got := value("running_managed_controllers"); got != 1 {
			t.Errorf("controllers that run: got %g, want 1", got)
		}
		b.put("a", nil)
		time.Sleep(20 * time.Second)
		b.put("b", nil)
		time.Sleep(10 * time.Second)
		check(40, 30)
		time.Sleep(40 * time.Second)
		check(50, 50)
		time.Sleep(time.Minute)
		check(0, 0)
	})
}
