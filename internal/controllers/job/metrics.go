package job

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/batch"
)

// metrics are those of jobs, under upstream's names.
type metrics struct {
	syncs    *prometheus.CounterVec
	synced   *prometheus.HistogramVec
	finished *prometheus.CounterVec
	pods     *prometheus.CounterVec
	indexes  *prometheus.CounterVec
	created  *prometheus.CounterVec
	policy   *prometheus.CounterVec
	foreign  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "job_controller_job_syncs_total",
			Help: "Looks at jobs, by the completion mode, the result (success, error) and what was done (reconciling, tracking, pods_created, pods_deleted).",
		}, []string{"completion_mode", "result", "action"}),
		synced: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "job_controller_job_sync_duration_seconds", Help: "How long a look at a job took.",
			Buckets: prometheus.ExponentialBuckets(0.004, 2, 15),
		}, []string{"completion_mode", "result", "action"}),
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "job_controller_jobs_finished_total", Help: "Jobs that are over, by the completion mode, the result (succeeded, failed) and the reason.",
		}, []string{"completion_mode", "result", "reason"}),
		pods: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "job_controller_job_pods_finished_total", Help: "Pods that have ended and are counted, by the completion mode and the result (succeeded, failed).",
		}, []string{"completion_mode", "result"}),
		indexes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "job_controller_job_finished_indexes_total", Help: "Indexes that are over, by the status (succeeded, failed) and whose the back-off limit is (perIndex, global).",
		}, []string{"status", "backoffLimit"}),
		created: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "job_controller_job_pods_creation_total",
			Help: "Pods that were asked for, by the reason (new, recreate_terminating_or_failed, recreate_failed) and the status (succeeded, failed).",
		}, []string{"reason", "status"}),
		policy: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "job_controller_pod_failures_handled_by_failure_policy_total", Help: "Failed pods that a rule of the failure policy was about, by its action.",
		}, []string{"action"}),
		foreign: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "job_controller_jobs_by_external_controller_total", Help: "Jobs that another controller takes care of, by its name.",
		}, []string{"controller_name"}),
	}
	reg.MustRegister(m.syncs, m.synced, m.finished, m.pods, m.indexes, m.created, m.policy, m.foreign)
	return m
}

// What a look comes to, as metrics have it.
const (
	lookWaits   = "reconciling"
	lookTracks  = "tracking"
	lookCreates = "pods_created"
	lookDeletes = "pods_deleted"
)

// looked counts a look at a job that began then.
func (m *metrics) looked(job *batchv1.Job, began time.Time, action string, err error) {
	mode, result := completionMode(job), "success"
	if err != nil {
		result = "error"
	}
	m.syncs.WithLabelValues(mode, result, action).Inc()
	m.synced.WithLabelValues(mode, result, action).Observe(time.Since(began).Seconds())
}

// made counts pods that were asked for, for a job as it was then.
func (m *metrics) made(v *view, asked, made int) {
	reason, terminating := "new", ptr.Deref(v.job.Status.Terminating, 0)
	switch {
	case v.job.Status.Failed > 0 && ptr.Deref(v.job.Spec.PodReplacementPolicy, batchv1.TerminatingOrFailed) == batchv1.Failed:
		reason = "recreate_failed"
	case v.job.Status.Failed > 0 || terminating > 0:
		reason = "recreate_terminating_or_failed"
	}
	m.created.WithLabelValues(reason, "succeeded").Add(float64(made))
	m.created.WithLabelValues(reason, "failed").Add(float64(asked - made))
}

// stored counts what the status of a job says that it did not say before.
func (m *metrics) stored(was, now *batchv1.Job) {
	mode := completionMode(now)
	grown := func(c *prometheus.CounterVec, by int32, labels ...string) {
		if by > 0 { // of an Indexed job that was made smaller there are fewer
			c.WithLabelValues(labels...).Add(float64(by))
		}
	}
	grown(m.pods, now.Status.Succeeded-was.Status.Succeeded, mode, "succeeded")
	grown(m.pods, now.Status.Failed-was.Status.Failed, mode, "failed")
	if batch.JobIndexed(&now.Spec) {
		limit := "global"
		if now.Spec.BackoffLimitPerIndex != nil {
			limit = "perIndex"
		}
		grown(m.indexes, listed(now.Status.CompletedIndexes)-listed(was.Status.CompletedIndexes), "succeeded", limit)
		grown(m.indexes, listed(ptr.Deref(now.Status.FailedIndexes, ""))-listed(ptr.Deref(was.Status.FailedIndexes, "")), "failed", limit)
	}
	if over := batch.JobFinished(now); over != nil && batch.JobFinished(was) == nil {
		result := "succeeded"
		if over.Type == batchv1.JobFailed {
			result = "failed"
		}
		m.finished.WithLabelValues(mode, result, over.Reason).Inc()
	}
}

// listed is how many indexes a status lists.
func listed(text string) int32 {
	list, err := batch.ParseIndexes(text, math.MaxInt32)
	if err != nil { // validation lets none through
		return 0
	}
	return list.Total()
}

func completionMode(job *batchv1.Job) string {
	return string(ptr.Deref(job.Spec.CompletionMode, batchv1.NonIndexedCompletion))
}
