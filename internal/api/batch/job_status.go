package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// validateJobStatus refuses a status that contradicts itself, the spec, or what
// was final before: a controller of somebody else may be at work. What a write
// does not touch is let be: the spec may have changed since, or an older release
// have written it, and nobody could mend the rest.
func validateJobStatus(obj, old *batchv1.Job, errs *resource.Errors) {
	s, touched := &obj.Status, touch(obj, old)
	errs.NonNegative("status.active", int64(s.Active))
	errs.NonNegative("status.succeeded", int64(s.Succeeded))
	errs.NonNegative("status.failed", int64(s.Failed))
	errs.NonNegative("status.ready", int64(ptr.Deref(s.Ready, 0)))
	errs.NonNegative("status.terminating", int64(ptr.Deref(s.Terminating, 0)))
	validateUncounted(s.UncountedTerminatedPods, errs)
	validateConditions(obj, &touched, errs)
	validateTimes(obj, &touched, errs)
	validateFinished(obj, &touched, errs)
	validateIndexes(obj, &touched, errs)
	if n := ptr.Deref(s.Ready, 0); (touched.ready || touched.active) && n > s.Active {
		errs.Invalid("status.ready", n, "cannot set more ready pods than active")
	}
	validateProgress(obj, old, errs)
}

// touched is what a write of a status changes.
type touched struct {
	finished, complete, failed, target, met bool // conditions
	done, lost                              bool // indexes
	active, ready, terminating, uncounted   bool
	start, completion                       bool
}

func touch(obj, old *batchv1.Job) touched {
	s, o := &obj.Status, &old.Status
	turned := func(t batchv1.JobConditionType) bool { return JobIs(obj, t) != JobIs(old, t) }
	return touched{
		finished: finished(obj) != finished(old), complete: turned(batchv1.JobComplete), failed: turned(batchv1.JobFailed),
		target: turned(batchv1.JobFailureTarget), met: turned(batchv1.JobSuccessCriteriaMet),
		done: s.CompletedIndexes != o.CompletedIndexes, lost: !ptr.Equal(s.FailedIndexes, o.FailedIndexes),
		active: s.Active != o.Active, ready: !ptr.Equal(s.Ready, o.Ready), terminating: !ptr.Equal(s.Terminating, o.Terminating),
		uncounted: !equality.Semantic.DeepEqual(s.UncountedTerminatedPods, o.UncountedTerminatedPods),
		start:     !s.StartTime.Equal(o.StartTime), completion: !s.CompletionTime.Equal(o.CompletionTime),
	}
}

func finished(j *batchv1.Job) bool {
	return JobIs(j, batchv1.JobComplete) || JobIs(j, batchv1.JobFailed)
}

func validateUncounted(u *batchv1.UncountedTerminatedPods, errs *resource.Errors) {
	if u == nil {
		return
	}
	seen := map[types.UID]bool{}
	check := func(uid types.UID, at *resource.Errors) {
		if uid == "" {
			at.Invalid("", uid, "must not be empty")
		} else if seen[uid] {
			at.Duplicate("", uid)
		}
		seen[uid] = true
	}
	for i, uid := range u.Succeeded {
		check(uid, errs.At("status.uncountedTerminatedPods.succeeded[%d]", i))
	}
	for i, uid := range u.Failed {
		check(uid, errs.At("status.uncountedTerminatedPods.failed[%d]", i))
	}
}

func validateConditions(j *batchv1.Job, by *touched, errs *resource.Errors) {
	complete, failed := JobIs(j, batchv1.JobComplete), JobIs(j, batchv1.JobFailed)
	target, met := JobIs(j, batchv1.JobFailureTarget), JobIs(j, batchv1.JobSuccessCriteriaMet)
	refuse := func(bad bool, detail string) {
		if bad {
			errs.Invalid("status.conditions", field.OmitValueType{}, detail)
		}
	}
	refuse((by.complete || by.failed) && complete && failed, "cannot set Complete=True and Failed=true conditions")
	refuse((by.complete || by.target) && complete && target, "cannot set Complete=True and FailureTarget=true conditions")
	refuse((by.failed || by.lost) && failed && !target, "cannot set Failed=True condition without the FailureTarget=true condition")
	refuse((by.complete || by.met) && complete && !met, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	refuse(met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	refuse(met && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	refuse(j.Spec.SuccessPolicy != nil && complete && !met, "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
}

func validateTimes(j *batchv1.Job, by *touched, errs *resource.Errors) {
	s, complete := &j.Status, JobIs(j, batchv1.JobComplete)
	if (by.complete || by.completion) && s.CompletionTime != nil && !complete {
		errs.Invalid("status.completionTime", s.CompletionTime, "cannot set completionTime when there is no Complete=True condition")
	}
	if (by.complete || by.completion) && s.CompletionTime == nil && complete {
		errs.Required("status.completionTime", "completionTime is required for Complete jobs")
	}
	if (by.start || by.completion) && s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime) {
		errs.Invalid("status.completionTime", s.CompletionTime, "must be equal to or after `startTime`")
	}
}

func validateFinished(j *batchv1.Job, by *touched, errs *resource.Errors) {
	s := &j.Status
	if !finished(j) {
		return
	}
	if (by.finished || by.active) && s.Active > 0 {
		errs.Invalid("status.active", s.Active, "active>0 is invalid for finished job")
	}
	neverBegan := ptr.Deref(j.Spec.Suspend, false) && ptr.Equal(j.Spec.Completions, ptr.To[int32](0))
	if (by.finished || by.start) && s.StartTime == nil && !neverBegan {
		errs.Required("status.startTime", "startTime is required for finished job")
	}
	if u := s.UncountedTerminatedPods; (by.finished || by.uncounted) && u != nil && len(u.Failed)+len(u.Succeeded) > 0 {
		errs.Invalid("status.uncountedTerminatedPods", u, "must be empty for finished job")
	}
	if n := ptr.Deref(s.Terminating, 0); (by.finished || by.terminating) && n > 0 {
		errs.Invalid("status.terminating", n, "terminating>0 is invalid for finished job")
	}
}

func validateIndexes(j *batchv1.Job, by *touched, errs *resource.Errors) {
	s, failed := &j.Status, ptr.Deref(j.Status.FailedIndexes, "")
	if by.done && s.CompletedIndexes != "" && !JobIndexed(&j.Spec) {
		errs.Invalid("status.completedIndexes", s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode")
	}
	if by.lost && s.FailedIndexes != nil && j.Spec.BackoffLimitPerIndex == nil {
		errs.Invalid("status.failedIndexes", failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	}
	if j.Spec.Completions == nil {
		return
	}
	done, err := ParseIndexes(s.CompletedIndexes, *j.Spec.Completions)
	if by.done && err != nil {
		errs.Invalid("status.completedIndexes", s.CompletedIndexes, "error parsing completedIndexes: "+err.Error())
	}
	bad, err := ParseIndexes(failed, *j.Spec.Completions)
	if by.lost && err != nil && j.Spec.BackoffLimitPerIndex != nil {
		errs.Invalid("status.failedIndexes", failed, "error parsing failedIndexes: "+err.Error())
	}
	if at, ok := firstOverlap(done, bad); ok && (by.done || by.lost) {
		errs.Invalid("status.failedIndexes", failed, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", at))
	}
}

// firstOverlap finds the first index that is in both lists.
func firstOverlap(a, b Indexes) (int32, bool) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].Last < b[0].First:
			a = a[1:]
		case b[0].Last < a[0].First:
			b = b[1:]
		default:
			return max(a[0].First, b[0].First), true
		}
	}
	return 0, false
}

// validateProgress refuses to take back what was final.
func validateProgress(obj, old *batchv1.Job, errs *resource.Errors) {
	s, o := &obj.Status, &old.Status
	for _, t := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		if JobIs(old, t) && !JobIs(obj, t) {
			errs.Invalid("status.conditions", field.OmitValueType{}, fmt.Sprintf("cannot disable the terminal %s=True condition", t))
		}
	}
	if s.Failed < o.Failed {
		errs.Invalid("status.failed", s.Failed, "cannot decrease the failed counter")
	}
	// Jobs whose indexes all run at once may shrink, and have fewer of them that succeeded.
	elastic := JobIndexed(&obj.Spec) && ptr.Equal(obj.Spec.Completions, obj.Spec.Parallelism)
	if s.Succeeded < o.Succeeded && !elastic {
		errs.Invalid("status.succeeded", s.Succeeded, "cannot decrease the succeeded counter")
	}
	if s.CompletionTime != nil && o.CompletionTime != nil && !s.CompletionTime.Equal(o.CompletionTime) {
		errs.Immutable("status.completionTime", s.CompletionTime)
	}
	resumed := JobIs(old, batchv1.JobSuspended) && !JobIs(obj, batchv1.JobSuspended)
	if o.StartTime != nil && !o.StartTime.Equal(s.StartTime) && !ptr.Deref(obj.Spec.Suspend, false) && !resumed {
		errs.Invalid("status.startTime", s.StartTime, "field is immutable for unsuspended job once set")
	}
	if JobIs(old, batchv1.JobSuccessCriteriaMet) && !JobIs(obj, batchv1.JobSuccessCriteriaMet) {
		errs.Invalid("status.conditions", field.OmitValueType{}, "cannot disable the SuccessCriteriaMet=True condition")
	}
	if JobIs(old, batchv1.JobComplete) && !JobIs(old, batchv1.JobSuccessCriteriaMet) && JobIs(obj, batchv1.JobSuccessCriteriaMet) {
		errs.Invalid("status.conditions", field.OmitValueType{}, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
	}
}
