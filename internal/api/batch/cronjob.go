package batch

import (
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // a machine need not have the time zones that a schedule names

	batchv1 "k8s.io/api/batch/v1"
	batchv1beta1 "k8s.io/api/batch/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/api/core/workload"
	"github.com/kemudi/kemudi/internal/resource"
)

// maxCronJobName leaves room for the time that a job's name ends in.
const maxCronJobName = validation.DNS1035LabelMaxLength - 11

var cronJobs = workload.Kind[*batchv1.CronJob]{
	Template:    func(c *batchv1.CronJob) *corev1.PodTemplateSpec { return &c.Spec.JobTemplate.Spec.Template },
	Selector:    func(c *batchv1.CronJob) *metav1.LabelSelector { return c.Spec.JobTemplate.Spec.Selector },
	SelectorDoc: batchv1.JobSpec{}.SwaggerDoc()["selector"],
}

// CronJobs create Jobs on a schedule.
var CronJobs = resource.Define(resource.Spec[*batchv1.CronJob]{
	Names:         resource.Names{Group: "batch", Version: "v1", Kind: "CronJob", Plural: "cronjobs", Short: []string{"cj"}, Categories: []string{"all"}, Namespaced: true},
	HasGeneration: true,
	Needs:         podspec.NeedsGroups(func(cj *batchv1.CronJob) *corev1.PodSpec { return &cj.Spec.JobTemplate.Spec.Template.Spec }),
	Default:       defaultCronJob,
	Prepare: func(obj, old *batchv1.CronJob) {
		podspec.DropUnsupported(&obj.Spec.JobTemplate.Spec.Template.Spec)
		obj.Spec.JobTemplate.Spec.Scheduling = nil // alpha
		if old == nil {
			obj.Status = batchv1.CronJobStatus{}
			return
		}
		obj.Status = old.Status
	},
	Validate: validateCronJob,
	Warn:     warnCronJob,
	Columns: cronJobs.Columns([]resource.Column[*batchv1.CronJob]{
		{Name: "Schedule", Description: batchv1.CronJobSpec{}.SwaggerDoc()["schedule"], Value: func(c *batchv1.CronJob) any { return c.Spec.Schedule }},
		{Name: "Timezone", Description: batchv1.CronJobSpec{}.SwaggerDoc()["timeZone"], Value: func(c *batchv1.CronJob) any { return ptr.Deref(c.Spec.TimeZone, "<none>") }},
		{Name: "Suspend", Type: "boolean", Description: batchv1.CronJobSpec{}.SwaggerDoc()["suspend"], Value: func(c *batchv1.CronJob) any { return suspendText(c) }},
		{Name: "Active", Type: "integer", Description: batchv1.CronJobStatus{}.SwaggerDoc()["active"], Value: func(c *batchv1.CronJob) any { return int64(len(c.Status.Active)) }},
		{Name: "Last Schedule", Description: batchv1.CronJobStatus{}.SwaggerDoc()["lastScheduleTime"], Value: func(c *batchv1.CronJob) any {
			if c.Status.LastScheduleTime == nil {
				return "<none>"
			}
			return resource.Age(*c.Status.LastScheduleTime)
		}},
	}...),
	Sub: []resource.Sub[*batchv1.CronJob]{{
		Name:     "status",
		Merge:    func(obj, old *batchv1.CronJob) { obj.Spec = old.Spec },
		Validate: func(_, _ *batchv1.CronJob, _ *resource.Errors) {},
	}},
	Versions: []resource.Version[*batchv1.CronJob]{resource.SameWire[*batchv1beta1.CronJob](resource.Version[*batchv1.CronJob]{
		Group: "batch", Version: "v1beta1",
		Deprecated:         "batch/v1beta1 CronJob is deprecated in v1.21+, unavailable in v1.25+; use batch/v1 CronJob",
		DefaultPropagation: metav1.DeletePropagationOrphan,
	})},
})

func defaultCronJob(c *batchv1.CronJob) {
	s := &c.Spec
	podspec.DefaultTemplate(&s.JobTemplate.Spec.Template)
	defaultFailurePolicy(s.JobTemplate.Spec.PodFailurePolicy)
	if s.ConcurrencyPolicy == "" {
		s.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	if s.Suspend == nil {
		s.Suspend = ptr.To(false)
	}
	if s.SuccessfulJobsHistoryLimit == nil {
		s.SuccessfulJobsHistoryLimit = ptr.To[int32](3)
	}
	if s.FailedJobsHistoryLimit == nil {
		s.FailedJobsHistoryLimit = ptr.To[int32](1)
	}
}

func validateCronJob(obj, old *batchv1.CronJob, errs *resource.Errors) {
	s := &obj.Spec
	if s.Schedule == "" {
		errs.Required("spec.schedule", "")
	} else {
		validateSchedule(s, old, errs)
	}
	errs.NonNegative("spec.startingDeadlineSeconds", ptr.Deref(s.StartingDeadlineSeconds, 0))
	if old == nil || ptr.Deref(old.Spec.TimeZone, "") != ptr.Deref(s.TimeZone, "") {
		validateTimeZone(s.TimeZone, errs)
	}
	switch s.ConcurrencyPolicy {
	case batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent:
	case "":
		errs.Required("spec.concurrencyPolicy", "")
	default:
		resource.NotSupported(errs, "spec.concurrencyPolicy", s.ConcurrencyPolicy, batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)
	}
	j := &s.JobTemplate.Spec
	validateJobSpec(j, errs.At("spec.jobTemplate.spec"))
	if j.Selector != nil {
		errs.Invalid("spec.jobTemplate.spec.selector", j.Selector, "`selector` will be auto-generated")
	}
	if ptr.Deref(j.ManualSelector, false) {
		errs.Add(field.NotSupported(errs.Path("spec.jobTemplate.spec.manualSelector"), *j.ManualSelector, []string{"nil", "false"}))
	}
	errs.NonNegative("spec.successfulJobsHistoryLimit", int64(ptr.Deref(s.SuccessfulJobsHistoryLimit, 0)))
	errs.NonNegative("spec.failedJobsHistoryLimit", int64(ptr.Deref(s.FailedJobsHistoryLimit, 0)))
	if old == nil && len(obj.Name) > maxCronJobName {
		errs.Invalid("metadata.name", obj.Name, validation.MaxLenError(maxCronJobName))
	}
}

func validateSchedule(s *batchv1.CronJobSpec, old *batchv1.CronJob, errs *resource.Errors) {
	if _, err := ParseSchedule(s.Schedule); err != nil {
		errs.Invalid("spec.schedule", s.Schedule, err.Error())
	}
	if !strings.Contains(s.Schedule, "TZ") {
		return
	}
	switch kept := old != nil && strings.Contains(old.Spec.Schedule, "TZ"); {
	case !kept:
		errs.Invalid("spec.schedule", s.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
	case s.TimeZone != nil:
		errs.Invalid("spec.schedule", s.Schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")
	}
}

// zonePart is one part of a time zone's name: no file name that leads elsewhere.
var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+][A-Za-z._0-9+\-]{0,13}$`)

func validateTimeZone(zone *string, errs *resource.Errors) {
	if zone == nil {
		return
	}
	if *zone == "" {
		errs.Invalid("spec.timeZone", *zone, "timeZone must be nil or non-empty string")
		return
	}
	for part := range strings.SplitSeq(*zone, "/") {
		if part == "." || part == ".." || !zonePart.MatchString(part) {
			errs.Invalid("spec.timeZone", *zone, "unknown time zone "+*zone)
			return
		}
	}
	if strings.EqualFold(*zone, "Local") {
		errs.Invalid("spec.timeZone", *zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	}
	if _, err := time.LoadLocation(*zone); err != nil {
		errs.Invalid("spec.timeZone", *zone, err.Error())
	}
}

func warnCronJob(c, old *batchv1.CronJob) []string {
	var warnings []string
	if old == nil {
		warnings = workload.WarnName(c.Name)
	} else if c.Generation == old.Generation {
		return nil
	}
	if strings.Contains(c.Spec.Schedule, "TZ") {
		warnings = append(warnings, "CRON_TZ or TZ used in spec.schedule is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
	}
	return append(warnings, warnJobSpec(&c.Spec.JobTemplate.Spec, "spec.jobTemplate.spec")...)
}

func suspendText(c *batchv1.CronJob) string {
	switch {
	case c.Spec.Suspend == nil:
		return "<unset>"
	case *c.Spec.Suspend:
		return "True"
	}
	return "False"
}
