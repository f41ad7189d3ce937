package job_test

import (
	"fmt"
	"sync/atomic"
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
	"github.com/kemudi/kemudi/internal/trace"
)

// life is a control plane that is killed and started again, with pods that end
// as the test says.
type life struct {
	*sim.Life
	succeeded, failed map[types.UID]bool // what became of pods
}

func (l *life) job() *batchv1.Job {
	l.Helper()
	job, err := client.For(l.Plane.Admin(), batch.Jobs).Get(l.Context(), "default", "work")
	if err != nil {
		l.Fatal(err)
	}
	return job
}

// end ends one of the active pods: well, badly, or by deleting it.
func (l *life) end() {
	l.Helper()
	pods := client.For(l.Plane.Admin(), core.Pods)
	var active []*corev1.Pod
	for _, p := range l.Pods() {
		if p.DeletionTimestamp == nil && !core.PodTerminal(p) {
			active = append(active, p)
		}
	}
	if len(active) == 0 {
		return
	}
	pod := active[l.Rng.IntN(len(active))].DeepCopy()
	if l.Rng.IntN(6) == 0 {
		err := pods.Delete(l.Context(), pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		if err == nil {
			l.failed[pod.UID] = true
		}
		l.Mind(err)
	} else {
		outcome := l.succeeded
		pod.Status.Phase = corev1.PodSucceeded
		if l.Rng.IntN(3) == 0 {
			outcome, pod.Status.Phase = l.failed, corev1.PodFailed
		}
		_, err := pods.UpdateStatus(l.Context(), pod)
		if err == nil {
			outcome[pod.UID] = true
		}
		l.Mind(err)
	}
}

// TestEachPodIsCountedOnceWheneverWeAreKilled runs jobs whose pods end at random
// under a control plane that is killed again and again, between any two writes.
// KEMUDI_SEED plays one seed again.
func TestEachPodIsCountedOnceWheneverWeAreKilled(t *testing.T) {
	trace.Proves(t, "JOB-002")
	var failed atomic.Int64
	sim.Lives(t, 12, func(l *sim.Life) { failed.Add(int64(play(l))) })
	if failed.Load() == 0 && !sim.Replays() {
		t.Error("no pod failed: nothing was tested")
	}
}

// play is one job's life; it returns how many of its pods failed.
func play(of *sim.Life) (failed int) {
	l, rng := &life{Life: of, succeeded: map[types.UID]bool{}, failed: map[types.UID]bool{}}, of.Rng
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work"},
		Spec: batchv1.JobSpec{
			Parallelism: ptr.To(1 + rng.Int32N(8)), Completions: ptr.To(10 + rng.Int32N(20)), BackoffLimit: ptr.To[int32](1000),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "c"}},
			}},
		},
	}
	if rng.IntN(2) == 0 {
		job.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	}
	if rng.IntN(3) == 0 {
		job.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
	}
	if _, err := client.For(l.Plane.Admin(), batch.Jobs).Create(l.Context(), job); err != nil {
		l.Fatal(err)
	}
	for moment := 0; batch.JobFinished(l.job()) == nil; moment++ {
		if moment == 20000 {
			l.Fatalf("the job does not end: %+v", l.job().Status)
		}
		for range rng.IntN(4) {
			l.end()
		}
		l.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
		if rng.IntN(8) == 0 {
			l.Plane.Kill()
		}
		if rng.IntN(4) == 0 { // let back-offs pass
			l.Sleep(time.Duration(rng.IntN(30)) * time.Second)
		}
		if s := l.job().Status; int(s.Succeeded) > len(l.succeeded) || int(s.Failed) > len(l.failed) {
			l.Fatalf("got %d succeeded and %d failed, want at most %d and %d", s.Succeeded, s.Failed, len(l.succeeded), len(l.failed))
		}
	}
	got := l.job()
	if s := got.Status; got.Status.CompletionTime == nil || int(s.Succeeded) != len(l.succeeded) || int(s.Failed) != len(l.failed) {
		l.Errorf("%s: got %d succeeded and %d failed, want %d and %d; %v", fmt.Sprint(*job.Spec.Parallelism, *job.Spec.Completions),
			s.Succeeded, s.Failed, len(l.succeeded), len(l.failed), s.Conditions)
	}
	for _, p := range l.Pods() {
		if len(p.Finalizers) > 0 {
			l.Errorf("pod %s still has %q", p.Name, p.Finalizers)
		}
	}
	return len(l.failed)
}
