package leader_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// schedule is a CronJob of each minute: no time has two runs, none is left out, and no two runs
// are side by side where they must not be.
type schedule struct {
	policy batchv1.ConcurrencyPolicy
	work   time.Duration

	from, until time.Time
	runs        map[string]types.UID // by the time of the schedule
}

func newSchedule(rng *rand.Rand) subject {
	policies := []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}
	return &schedule{policy: policies[rng.IntN(3)], work: time.Duration(5+rng.IntN(80)) * time.Second, runs: map[string]types.UID{}}
}

func (s *schedule) begin(l *life) {
	s.from = time.Now()
	create(l, batch.CronJobs, &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "tick"},
		Spec: batchv1.CronJobSpec{Schedule: "* * * * *", ConcurrencyPolicy: s.policy, JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			Template: template("tick", corev1.RestartPolicyNever, map[string]string{"sim.kemudi.io/exit-after": s.work.String()}),
		}}},
	})
}

// act waits until about when a run begins.
func (s *schedule) act(l *life) {
	l.sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)) + time.Duration(l.rng.IntN(40)-5)*time.Millisecond)
}

func (s *schedule) rest(l *life) {
	l.must(nil, merge(l.Context(), l.c.API(), batch.CronJobs, "tick", `{"spec":{"suspend":true}}`))
	s.until = time.Now()
}

func (s *schedule) see(w *world, was, now resource.Object) {
	job, ok := now.(*batchv1.Job)
	if !ok || was != nil {
		return
	}
	at := job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
	if s.runs[at] != "" {
		w.breaks("the run of %s was made twice", at)
	}
	s.runs[at] = job.UID
	running := all(w, func(j *batchv1.Job) bool { return j.DeletionTimestamp == nil && batch.JobFinished(j) == nil })
	if s.policy != batchv1.AllowConcurrent && len(running) > 1 {
		w.breaks("%d runs are side by side", len(running))
	}
}

func (s *schedule) hold(*world) {}

func (s *schedule) end(w *world) {
	if s.policy == batchv1.ForbidConcurrent {
		return
	}
	for at := s.from.Truncate(time.Minute).Add(time.Minute); at.Before(s.until.Add(-time.Minute)); at = at.Add(time.Minute) {
		if s.runs[at.UTC().Format(time.RFC3339)] == "" {
			w.Errorf("there was no run at %s, of %d", at.UTC().Format(time.RFC3339), len(s.runs))
		}
	}
}

// families are owners that are deleted with and without what is theirs.
type families struct {
	rng   *rand.Rand
	there []string // all that were ever made
	loose []string // of them, those whose members are to stay in any case
}

func newFamilies(rng *rand.Rand) subject { return &families{rng: rng} }

func (f *families) begin(l *life) {
	for range 3 {
		f.make(l)
	}
}

const members = 2

func (f *families) make(l *life) {
	name := fmt.Sprint("family", len(f.there))
	f.there = append(f.there, name)
	t := served(f.rng, name)
	t.Annotations["version"] = "last"
	labels := &metav1.LabelSelector{MatchLabels: map[string]string{"of": name}}
	meta := metav1.ObjectMeta{Name: name}
	if f.rng.IntN(3) == 0 {
		f.loose = append(f.loose, name)
	}
	if f.rng.IntN(2) == 0 {
		create(l, apps.Deployments, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](members), Selector: labels, Template: t}})
	} else {
		create(l, apps.ReplicaSets, &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](members), Selector: labels, Template: t}})
	}
}

// act deletes one, whichever it is, and makes another.
func (f *families) act(l *life) {
	if f.rng.IntN(2) == 0 {
		f.make(l)
	}
	name, ok := among(f.rng, f.there)
	if !ok {
		return
	}
	policy := metav1.DeletePropagationOrphan
	if !slices.Contains(f.loose, name) {
		policy = []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}[f.rng.IntN(2)]
	}
	options := metav1.DeleteOptions{PropagationPolicy: &policy}
	l.ask(func(ctx context.Context, t client.Transport) error {
		return client.For(t, apps.Deployments).Delete(ctx, "default", name, options)
	})
	l.ask(func(ctx context.Context, t client.Transport) error {
		return client.For(t, apps.ReplicaSets).Delete(ctx, "default", name, options)
	})
}

func (f *families) rest(*life) {}

func (f *families) see(*world, resource.Object, resource.Object) {}

func (f *families) hold(*world) {}

// end holds that what there is of a family is all of it, or nothing.
func (f *families) end(w *world) {
	for _, name := range f.there {
		owned := all(w, func(d *appsv1.Deployment) bool { return d.Name == name })
		sets := all(w, func(s *appsv1.ReplicaSet) bool { return s.Labels["of"] == name || s.Name == name })
		want := 0
		switch {
		case len(owned)+len(sets) > 0:
			want = members
		case slices.Contains(f.loose, name): // those that there were by then
			want = min(len(podsOf(w, name)), members)
		}
		if len(owned) > 0 && len(sets) == 0 {
			w.Errorf("%s has no set", name)
		}
		settled(w, name, want)
	}
}
