package cronjob_test

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/sim"
)

// timetable is what was seen of the runs of a CronJob under a control plane that is killed and
// started again. The test is what runs the pods.
type timetable struct {
	*sim.Life
	runs map[string]map[string]types.UID // by CronJob and the time of the schedule, the Job
}

// TestEachTimeHasOneRunWheneverWeAreKilled has CronJobs run every minute with each policy, with pods
// that end well, fail or go on at random, under a control plane that is killed between
// any two writes: no time of the schedule is left out, none has two Jobs, and no two Jobs run
// side by side where they must not. KEMUDI_SEED plays one seed again.
func TestEachTimeHasOneRunWheneverWeAreKilled(t *testing.T) {
	sim.Lives(t, 4, func(l *sim.Life) {
		x := &timetable{Life: l, runs: map[string]map[string]types.UID{}}
		x.play()
	})
}

// minutes is how long a game is.
const minutes = 8

func (x *timetable) play() {
	for _, policy := range []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent} {
		name := map[batchv1.ConcurrencyPolicy]string{batchv1.AllowConcurrent: "allow", batchv1.ForbidConcurrent: "forbid", batchv1.ReplaceConcurrent: "replace"}[policy]
		x.runs[name] = map[string]types.UID{}
		_, err := client.For(x.Plane.Admin(), batch.CronJobs).Create(x.Context(), &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: batchv1.CronJobSpec{
				Schedule: "* * * * *", ConcurrencyPolicy: policy, SuccessfulJobsHistoryLimit: ptr.To[int32](2 * minutes), FailedJobsHistoryLimit: ptr.To[int32](2 * minutes),
				JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: corev1.PodTemplateSpec{
					Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				}}},
			},
		})
		if err != nil {
			x.Fatal(err)
		}
	}
	until := time.Now().Truncate(time.Minute).Add(minutes*time.Minute + 30*time.Second)
	for time.Now().Before(until) {
		if x.Rng.IntN(2) == 0 { // about when runs begin
			x.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)) + time.Duration(x.Rng.IntN(30))*time.Millisecond)
		} else {
			x.Sleep(time.Duration(1+x.Rng.IntN(20)) * time.Second)
		}
		for range x.Rng.IntN(3) {
			x.Plane.Kill()
			x.Sleep(time.Duration(x.Rng.IntN(20)) * time.Millisecond)
		}
		x.Sleep(time.Second) // or a run could be replaced without having been seen
		x.check()
		x.help()
	}
	x.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(90 * time.Second)))
	x.check()
	for _, name := range []string{"allow", "replace"} {
		passed := int(time.Since(until.Truncate(time.Minute)).Minutes()) + minutes
		if got := len(x.runs[name]); got != passed {
			x.Errorf("%s: got %d runs in %d minutes, want one in each", name, got, passed)
		}
	}
}

// help ends some of the pods.
func (x *timetable) help() {
	for _, p := range x.Pods() {
		p = p.DeepCopy()
		switch x.Rng.IntN(4) {
		case 0:
			p.Status.Phase = corev1.PodFailed
		case 1, 2:
			p.Status.Phase = corev1.PodSucceeded
		default:
			continue
		}
		if core.PodTerminal(p) && p.DeletionTimestamp != nil {
			continue
		}
		_, err := client.For(x.Plane.Admin(), core.Pods).UpdateStatus(x.Context(), p)
		x.Mind(err)
	}
}

func (x *timetable) check() {
	x.Helper()
	all, err := client.For(x.Plane.Admin(), batch.Jobs).List(x.Context(), "default", metav1.ListOptions{})
	if err != nil {
		x.Fatal(err)
	}
	running := map[string]int{}
	for _, j := range all {
		owner, at := metav1.GetControllerOf(j).Name, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
		if before, ok := x.runs[owner][at]; ok && before != j.UID {
			x.Fatalf("%s: the run of %s was made twice", owner, at)
		}
		x.runs[owner][at] = j.UID
		if batch.JobFinished(j) == nil && j.DeletionTimestamp == nil {
			running[owner]++
		}
	}
	if running["forbid"] > 1 || running["replace"] > 1 {
		x.Fatalf("got %v Jobs that run, want one at the most where there must not be more", running)
	}
}
