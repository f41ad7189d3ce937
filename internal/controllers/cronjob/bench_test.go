package cronjob_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/kemudi/kemudi/internal/task"
)

// BenchmarkOneMinute is how long it takes until 5,000 CronJobs that are due in
// the same minute have made their Jobs, on the memory store. The Jobs are suspended,
// so that nothing else is measured. It waits for that minute.
func BenchmarkOneMinute(b *testing.B) {
	const cronJobs = 5000
	for b.Loop() {
		b.StopTimer()
		c, err := sim.Start(b.Context(), sim.Options{})
		if err != nil {
			b.Fatal(err)
		}
		due := time.Now().Truncate(time.Minute).Add(2 * time.Minute)
		for i := range cronJobs {
			_, err := client.For(c.API(), batch.CronJobs).Create(b.Context(), &batchv1.CronJob{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("c%d", i)},
				Spec: batchv1.CronJobSpec{
					Schedule: fmt.Sprintf("%d * * * *", due.Minute()),
					JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
						Suspend: ptr.To(true),
						Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
							RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "c"}},
						}},
					}},
				},
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		if err := task.Sleep(b.Context(), time.Until(due)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		left := cronJobs
		err = c.API().Cache(batch.CronJobs.Def, "").Each(b.Context(), cache.FollowOptions{}, func(deltas []cache.Delta) error {
			for _, d := range deltas {
				if d.Now.Object.(*batchv1.CronJob).Status.LastScheduleTime != nil {
					left--
				}
			}
			if left == 0 {
				return context.Canceled
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			b.Fatal(err)
		}
		b.ReportMetric(cronJobs/time.Since(due).Seconds(), "jobs/s")
		b.StopTimer()
		if err := c.Stop(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
