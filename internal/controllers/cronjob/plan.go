package cronjob

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/controller"
)

// tooMany is more runs than are caught up with: most likely a clock was wrong,
// or nobody was there for long.
const tooMany = 100

// view is a CronJob with its Jobs at one time.
type view struct {
	cj   *batchv1.CronJob
	jobs []*batchv1.Job // that it controls
	now  time.Time
	// given are the runs up to then that were given up as too many; zero: none.
	given time.Time
}

// plan is what is next for a CronJob. It is done from the top down.
type plan struct {
	remove []*batchv1.Job // those kept as history beyond the limits, and those that are replaced
	create *batchv1.Job   // nil: none
	due    time.Time      // for which it is made
	status batchv1.CronJobStatus
	events []event
	given  time.Time
	after  time.Duration // until the next run; 0: there is none
}

type event struct{ kind, reason, message string }

func (p *plan) note(reason, format string, args ...any) {
	p.events = append(p.events, event{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)})
}

func (p *plan) warn(reason, format string, args ...any) {
	p.events = append(p.events, event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)})
}

// next decides what is next.
func (v *view) next() plan {
	p := plan{status: *v.cj.Status.DeepCopy(), given: v.given}
	v.prune(&p)
	v.observe(&p)
	if v.cj.DeletionTimestamp != nil || ptr.Deref(v.cj.Spec.Suspend, false) {
		return p
	}
	schedule, err := v.schedule(&p)
	if err != nil { // validation lets none through, but time zones come and go
		if v.cj.Spec.TimeZone != nil {
			p.warn("UnknownTimeZone", "invalid timeZone: %q: %s", *v.cj.Spec.TimeZone, err)
		} else {
			p.warn("UnparseableSchedule", "unparseable schedule: %q : %s", v.cj.Spec.Schedule, err)
		}
		return p
	}
	due, missed, next := v.due(schedule)
	if next.IsZero() { // there is no 31 February
		p.warn("InvalidSchedule", "invalid schedule: %s : time difference between two schedules is less than 1 second", v.cj.Spec.Schedule)
	} else {
		p.after = next.Sub(v.now)
	}
	if missed > tooMany {
		p.given = v.now
		p.warn("TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
		return p
	}
	if !due.IsZero() {
		v.run(due, &p)
	}
	return p
}

// schedule is the schedule in the CronJob's time zone. One that names a zone itself, as
// only CronJobs of old do, is obeyed, but people are told.
func (v *view) schedule(p *plan) (batch.Schedule, error) {
	text := v.cj.Spec.Schedule
	if strings.Contains(text, "TZ") {
		p.warn("UnsupportedSchedule",
			"CRON_TZ or TZ used in schedule %q is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", text)
	} else if zone := v.cj.Spec.TimeZone; zone != nil {
		text = "TZ=" + *zone + " " + text
	}
	return batch.ParseSchedule(text)
}

// due is the newest time of the schedule for which there was no run, zero if
// there is none; how many there are (not counted beyond tooMany); and the first
// that is yet to come.
func (v *view) due(s batch.Schedule) (due time.Time, missed int, next time.Time) {
	since := v.cj.CreationTimestamp.Time
	if last := v.cj.Status.LastScheduleTime; last != nil {
		since = last.Time
	}
	if d := v.cj.Spec.StartingDeadlineSeconds; d != nil {
		since = later(since, v.now.Add(-time.Duration(*d)*time.Second))
	}
	since = later(since, v.given)
	next = s.Next(since.Local())
	for ; !next.IsZero() && !next.After(v.now); next = s.Next(next) {
		if missed++; missed > tooMany {
			return time.Time{}, missed, s.Next(v.now.Local())
		}
		due = next
	}
	return due, missed, next
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// prune chooses the ended Jobs beyond the limits of the history, oldest first.
func (v *view) prune(p *plan) {
	ended := map[batchv1.JobConditionType][]*batchv1.Job{}
	for _, j := range v.jobs {
		if c := batch.JobFinished(j); c != nil && j.DeletionTimestamp == nil {
			ended[c.Type] = append(ended[c.Type], j)
		}
	}
	keep := func(t batchv1.JobConditionType, limit *int32) {
		jobs := ended[t]
		if limit == nil || len(jobs) <= int(*limit) {
			return
		}
		slices.SortFunc(jobs, func(a, b *batchv1.Job) int {
			return cmp.Or(started(a).Compare(started(b)), cmp.Compare(a.Name, b.Name))
		})
		p.remove = append(p.remove, jobs[:len(jobs)-int(*limit)]...)
	}
	keep(batchv1.JobComplete, v.cj.Spec.SuccessfulJobsHistoryLimit)
	keep(batchv1.JobFailed, v.cj.Spec.FailedJobsHistoryLimit)
}

func started(j *batchv1.Job) time.Time {
	if j.Status.StartTime == nil {
		return j.CreationTimestamp.Time
	}
	return j.Status.StartTime.Time
}

// observe brings the status up to date with the Jobs.
func (v *view) observe(p *plan) {
	known := map[types.UID]bool{}
	for _, ref := range p.status.Active {
		known[ref.UID] = true
	}
	over := map[types.UID]bool{} // Jobs that are not active, whatever the status says
	there := map[types.UID]bool{}
	for _, j := range v.jobs {
		there[j.UID] = true
		end := batch.JobFinished(j)
		switch {
		case end != nil && known[j.UID]:
			over[j.UID] = true
			p.note("SawCompletedJob", "Saw completed job: %s, condition: %s", j.Name, end.Type)
		case end == nil && !known[j.UID] && j.DeletionTimestamp == nil:
			if at, ok := v.made(j); ok { // we were killed before the status was written
				p.activate(j, at)
			} else {
				p.warn("UnexpectedJob", "Saw a job that the controller did not create or forgot: %s", j.Name)
			}
		}
		if done := j.Status.CompletionTime; end != nil && end.Type == batchv1.JobComplete && done != nil {
			if last := p.status.LastSuccessfulTime; last == nil || done.After(last.Time) {
				p.status.LastSuccessfulTime = done
			}
		}
	}
	for _, ref := range v.cj.Status.Active {
		if !there[ref.UID] {
			over[ref.UID] = true
			p.note("MissingJob", "Active job went missing: %s", ref.Name)
		}
	}
	p.status.Active = slices.DeleteFunc(p.status.Active, func(ref corev1.ObjectReference) bool { return over[ref.UID] })
}

// made says for which time, later than the last that the status knows, the
// controller has made a Job.
func (v *view) made(j *batchv1.Job) (at time.Time, ok bool) {
	at, err := time.Parse(time.RFC3339, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	last := v.cj.Status.LastScheduleTime
	return at, err == nil && j.Name == nameAt(v.cj, at) && (last == nil || at.After(last.Time))
}

// activate notes a Job in the status that was made for a time.
func (p *plan) activate(j *batchv1.Job, at time.Time) {
	p.status.Active = append(p.status.Active, corev1.ObjectReference{
		APIVersion: "batch/v1", Kind: "Job", Namespace: j.Namespace, Name: j.Name, UID: j.UID, ResourceVersion: j.ResourceVersion,
	})
	if last := p.status.LastScheduleTime; last == nil || at.After(last.Time) {
		p.status.LastScheduleTime = ptr.To(metav1.NewTime(at))
	}
}

// run starts the run that is due, unless it is too late or another stands in its way.
func (v *view) run(due time.Time, p *plan) {
	if last := p.status.LastScheduleTime; last != nil && !due.After(last.Time) {
		return // its Job was there already
	}
	deadline := v.cj.Spec.StartingDeadlineSeconds
	if deadline != nil && due.Add(time.Duration(*deadline)*time.Second).Before(v.now) {
		p.warn("MissSchedule", "Missed scheduled time to start a job: %s", due.UTC().Format(time.RFC1123Z))
		return
	}
	switch {
	case v.cj.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && len(p.status.Active) > 0:
		p.note("JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
		return
	case v.cj.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent:
		for _, j := range v.jobs {
			if slices.ContainsFunc(p.status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == j.UID }) {
				p.remove = append(p.remove, j)
			}
		}
	}
	p.create, p.due = v.job(due), due
}

// job makes the Job of a time.
func (v *view) job(at time.Time) *batchv1.Job {
	t := &v.cj.Spec.JobTemplate
	zone, err := time.LoadLocation(ptr.Deref(v.cj.Spec.TimeZone, ""))
	if err != nil {
		zone = time.UTC
	}
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.cj.Namespace, Name: nameAt(v.cj, at), Labels: maps.Clone(t.Labels), Annotations: maps.Clone(t.Annotations),
			OwnerReferences: []metav1.OwnerReference{*controller.ControllerRef(v.cj, batch.CronJobs.Def)},
		},
		Spec: *t.Spec.DeepCopy(),
	}
	if j.Annotations == nil {
		j.Annotations = map[string]string{}
	}
	j.Annotations[batchv1.CronJobScheduledTimestampAnnotation] = at.In(zone).Format(time.RFC3339)
	return j
}

// nameAt is the name of the Job of a time: that of the minute.
func nameAt(cj *batchv1.CronJob, at time.Time) string {
	return fmt.Sprintf("%s-%d", cj.Name, at.Unix()/60)
}
