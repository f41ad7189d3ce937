package batch

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/api/core/workload"
	"github.com/kemudi/kemudi/internal/resource"
)

// Labels that pods of a job had before they got a domain. Pods have both.
const (
	legacyJobNameLabel       = "job-name"
	legacyControllerUIDLabel = "controller-uid"
)

var jobs = workload.Kind[*batchv1.Job]{
	Template:    func(j *batchv1.Job) *corev1.PodTemplateSpec { return &j.Spec.Template },
	Selector:    func(j *batchv1.Job) *metav1.LabelSelector { return j.Spec.Selector },
	SelectorDoc: batchv1.JobSpec{}.SwaggerDoc()["selector"],
}

// Jobs run pods to completion. What is checked is in job_validate.go (the spec),
// job_policy.go (when a job fails or succeeds early) and job_status.go.
var Jobs = resource.Define(resource.Spec[*batchv1.Job]{
	Names:         resource.Names{Group: "batch", Version: "v1", Kind: "Job", Plural: "jobs", Categories: []string{"all"}, Namespaced: true},
	HasGeneration: true,
	Needs:         podspec.NeedsGroups(func(j *batchv1.Job) *corev1.PodSpec { return &j.Spec.Template.Spec }),
	// As it was in the first version of this group.
	Deletion: resource.Deletion[*batchv1.Job]{
		DefaultPropagation: metav1.DeletePropagationOrphan,
		NoPolicyWarning:    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
	},
	Default:  defaultJob,
	Prepare:  prepareJob,
	Validate: validateJob,
	Warn:     warnJob,
	Columns: jobs.Columns([]resource.Column[*batchv1.Job]{
		{Name: "Status", Description: "Status of the job.", Value: func(j *batchv1.Job) any { return statusText(j) }},
		{Name: "Completions", Description: batchv1.JobStatus{}.SwaggerDoc()["succeeded"], Value: func(j *batchv1.Job) any { return completionsText(j) }},
		{Name: "Duration", Description: "Time required to complete the job.", Value: func(j *batchv1.Job) any { return durationText(j) }},
	}...),
	Fields: map[string]func(*batchv1.Job) string{
		"status.successful": func(j *batchv1.Job) string { return strconv.Itoa(int(j.Status.Succeeded)) },
	},
	Sub: []resource.Sub[*batchv1.Job]{{
		Name:     "status",
		Merge:    func(obj, old *batchv1.Job) { obj.Spec = old.Spec },
		Validate: validateJobStatus,
	}},
})

func defaultJob(j *batchv1.Job) {
	s := &j.Spec
	podspec.DefaultTemplate(&s.Template)
	if s.Completions == nil && s.Parallelism == nil {
		s.Completions = ptr.To[int32](1)
	}
	if s.Parallelism == nil {
		s.Parallelism = ptr.To[int32](1)
	}
	if s.BackoffLimit == nil {
		s.BackoffLimit = ptr.To[int32](6)
		if s.BackoffLimitPerIndex != nil {
			s.BackoffLimit = ptr.To[int32](math.MaxInt32)
		}
	}
	defaultJobLabels(j)
	if s.CompletionMode == nil {
		s.CompletionMode = ptr.To(batchv1.NonIndexedCompletion)
	}
	if s.Suspend == nil {
		s.Suspend = ptr.To(false)
	}
	if s.ManualSelector == nil {
		s.ManualSelector = ptr.To(false)
	}
	if s.PodReplacementPolicy == nil {
		s.PodReplacementPolicy = ptr.To(batchv1.TerminatingOrFailed)
		if s.PodFailurePolicy != nil {
			s.PodReplacementPolicy = ptr.To(batchv1.Failed)
		}
	}
	defaultFailurePolicy(s.PodFailurePolicy)
}

// defaultJobLabels gives a job without labels those of its pods.
func defaultJobLabels(j *batchv1.Job) {
	if len(j.Labels) == 0 && len(j.Spec.Template.Labels) > 0 {
		j.Labels = maps.Clone(j.Spec.Template.Labels)
	}
}

func defaultFailurePolicy(p *batchv1.PodFailurePolicy) {
	if p == nil {
		return
	}
	for i := range p.Rules {
		for k := range p.Rules[i].OnPodConditions {
			if c := &p.Rules[i].OnPodConditions[k]; c.Status == "" {
				c.Status = corev1.ConditionTrue
			}
		}
	}
}

func prepareJob(obj, old *batchv1.Job) {
	podspec.DropUnsupported(&obj.Spec.Template.Spec)
	obj.Spec.Scheduling = nil // alpha
	if old != nil {
		obj.Status = old.Status
		return
	}
	obj.Status = batchv1.JobStatus{}
	if !ptr.Deref(obj.Spec.ManualSelector, false) {
		generateSelector(obj)
	}
	defaultJobLabels(obj) // which a template without any of its own has only now
}

// generateSelector marks the pods with the job's name and UID, and selects the
// latter, so that no other controller has an eye on them. What the client set
// itself stays, and is refused where it is in the way.
func generateSelector(j *batchv1.Job) {
	labels := map[string]string{
		legacyJobNameLabel: j.Name, batchv1.JobNameLabel: j.Name,
		legacyControllerUIDLabel: string(j.UID), batchv1.ControllerUidLabel: string(j.UID),
	}
	for k, v := range j.Spec.Template.Labels {
		labels[k] = v
	}
	j.Spec.Template.Labels = labels
	selected := map[string]string{batchv1.ControllerUidLabel: string(j.UID)}
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	for k, v := range j.Spec.Selector.MatchLabels {
		selected[k] = v
	}
	j.Spec.Selector.MatchLabels = selected
}

func warnJob(j, old *batchv1.Job) []string {
	var warnings []string
	if old == nil {
		warnings = workload.WarnName(j.Name)
	} else if j.Generation == old.Generation {
		return nil
	}
	return append(warnings, warnJobSpec(&j.Spec, "spec")...)
}

func warnJobSpec(s *batchv1.JobSpec, path string) []string {
	warnings := podspec.WarnTemplate(&s.Template, path+".template")
	if JobIndexed(s) && ptr.Deref(s.Completions, 0) > 100_000 && ptr.Deref(s.Parallelism, 0) > 10_000 {
		warnings = append(warnings, path+": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	return warnings
}

// JobIndexed says that the pods of a job have completion indexes.
func JobIndexed(s *batchv1.JobSpec) bool {
	return ptr.Deref(s.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

// JobIs says that a condition of a job is true.
func JobIs(j *batchv1.Job, t batchv1.JobConditionType) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// JobFinished is the condition that says that a job is over, or nil.
func JobFinished(j *batchv1.Job) *batchv1.JobCondition {
	for i := range j.Status.Conditions {
		c := &j.Status.Conditions[i]
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return c
		}
	}
	return nil
}

func statusText(j *batchv1.Job) string {
	switch {
	case JobIs(j, batchv1.JobComplete):
		return "Complete"
	case JobIs(j, batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case JobIs(j, batchv1.JobSuspended):
		return "Suspended"
	case JobIs(j, batchv1.JobFailureTarget):
		return "FailureTarget"
	}
	return "Running"
}

func completionsText(j *batchv1.Job) string {
	parallelism := ptr.Deref(j.Spec.Parallelism, 0)
	switch {
	case j.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, parallelism)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

func durationText(j *batchv1.Job) string {
	switch s := &j.Status; {
	case s.StartTime == nil:
		return ""
	case s.CompletionTime == nil:
		return duration.HumanDuration(time.Since(s.StartTime.Time))
	default:
		return duration.HumanDuration(s.CompletionTime.Sub(s.StartTime.Time))
	}
}
