package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/batch"
)

// verdict is why the job is to end, whatever its pods still do, or nil. What was
// stored once stays.
func (v *view) verdict(t *tally) *batchv1.JobCondition {
	for i := range v.job.Status.Conditions {
		c := &v.job.Status.Conditions[i]
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobSuccessCriteriaMet || c.Type == batchv1.JobFailureTarget) {
			return c
		}
	}
	s := &v.job.Spec
	if message := v.failJob(); message != "" {
		return v.condition(batchv1.JobFailureTarget, "PodFailurePolicy", message)
	}
	started := v.job.Status.StartTime
	if batch.JobIs(v.job, batchv1.JobSuspended) {
		started = nil // of before it was suspended, as older controllers left it
	}
	left, timed := v.deadline(started)
	switch {
	case t.failed > ptr.Deref(s.BackoffLimit, 6), v.restartedTooOften():
		return v.condition(batchv1.JobFailureTarget, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
	case timed && left <= 0:
		return v.condition(batchv1.JobFailureTarget, "DeadlineExceeded", "Job was active longer than specified deadline")
	case !v.indexed():
		return nil
	case s.MaxFailedIndexes != nil && t.lost.Total() > *s.MaxFailedIndexes:
		return v.condition(batchv1.JobFailureTarget, "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes")
	case len(t.lost) > 0 && t.lost.Total()+t.completed.Total() >= *s.Completions:
		return v.condition(batchv1.JobFailureTarget, "FailedIndexes", "Job has failed indexes")
	}
	if message, ok := v.succeedsEarly(t.completed); ok {
		return v.condition(batchv1.JobSuccessCriteriaMet, "SuccessPolicy", message)
	}
	return nil
}

// completed is why a job without active pods is to end, or nil.
func (v *view) completed(t *tally) *batchv1.JobCondition {
	enough := t.succeeded > 0 // of a work queue, whoever found it empty
	if n := v.job.Spec.Completions; n != nil {
		enough = t.succeeded >= *n
	}
	if !enough {
		return nil
	}
	return v.condition(batchv1.JobSuccessCriteriaMet, "CompletionsReached", "Reached expected number of succeeded pods")
}

// restartedTooOften says that the containers of pods that restart in place have
// used up the back-off limit.
func (v *view) restartedTooOften() bool {
	if v.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	restarts := int32(0)
	for _, p := range v.pods {
		if p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodPending {
			continue
		}
		for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
			for i := range list {
				restarts += list[i].RestartCount
			}
		}
	}
	return restarts >= max(1, ptr.Deref(v.job.Spec.BackoffLimit, 6))
}

// deadline is how long the job may still be active. ok is false if it has no
// deadline, or its clock stands still.
func (v *view) deadline(started *metav1.Time) (left time.Duration, ok bool) {
	if v.job.Spec.ActiveDeadlineSeconds == nil || started == nil || v.suspended() {
		return 0, false
	}
	return time.Duration(*v.job.Spec.ActiveDeadlineSeconds)*time.Second - v.now.Sub(started.Time), true
}

// suspend notes that the job is suspended, or is no more: its clock stops, and begins anew.
func (v *view) suspend(p *plan) {
	at := slices.IndexFunc(p.status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended })
	c := v.condition(batchv1.JobSuspended, "JobSuspended", "Job suspended")
	e := event{corev1.EventTypeNormal, "Suspended", "Job suspended"}
	if !v.suspended() {
		if at < 0 {
			return
		}
		c = v.condition(batchv1.JobSuspended, "JobResumed", "Job resumed")
		c.Status = corev1.ConditionFalse
		e = event{corev1.EventTypeNormal, "Resumed", "Job resumed"}
	}
	switch {
	case at < 0:
		p.status.Conditions = append(p.status.Conditions, *c)
	case p.status.Conditions[at].Status == c.Status:
		return
	default:
		p.status.Conditions[at] = *c
	}
	p.events = append(p.events, e)
	p.status.StartTime = nil
	if !v.suspended() {
		p.status.StartTime = v.stamp()
	}
}

func (v *view) condition(t batchv1.JobConditionType, reason, message string) *batchv1.JobCondition {
	return &batchv1.JobCondition{
		Type: t, Status: corev1.ConditionTrue, LastProbeTime: *v.stamp(), LastTransitionTime: *v.stamp(), Reason: reason, Message: message,
	}
}
