package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// Bounds that keep the indexes in a job's status short.
const (
	maxIndexedParallelism = 100_000
	maxFailedIndexes      = 100_000
	manyCompletions       = 100_000
	maxOfMany             = 10_000 // parallelism and failed indexes with many completions
	maxManagedBy          = 63
)

func validateJob(obj, old *batchv1.Job, errs *resource.Errors) {
	if old == nil {
		validateGenerated(obj, errs)
	}
	validateJobSpec(&obj.Spec, errs.At("spec"))
	validateSelector(&obj.Spec, errs)
	if old != nil {
		validateJobUpdate(obj, old, errs)
		return
	}
	if n := ptr.Deref(obj.Spec.Completions, 0); JobIndexed(&obj.Spec) && n > 0 {
		host := fmt.Sprintf("%s-%d", obj.Name, n-1)
		if len(validation.IsDNS1123Label(host)) > 0 {
			errs.Invalid("metadata.name", obj.Name, "will not able to create pod with invalid DNS label: "+host)
		}
	}
}

// validateGenerated refuses a client's labels and selectors that contradict the
// generated ones.
func validateGenerated(j *batchv1.Job, errs *resource.Errors) {
	if ptr.Deref(j.Spec.ManualSelector, false) || j.Spec.Selector == nil {
		return
	}
	if j.UID == "" {
		errs.Required("metadata.uid", "")
	}
	want := [][2]string{
		{legacyControllerUIDLabel, string(j.UID)}, {legacyJobNameLabel, j.Name},
		{batchv1.ControllerUidLabel, string(j.UID)}, {batchv1.JobNameLabel, j.Name},
	}
	generated := labels.Set{}
	for _, l := range want {
		generated[l[0]] = l[1]
		got, ok := j.Spec.Template.Labels[l[0]]
		at := errs.At("spec.template.metadata.labels")
		switch {
		case !ok:
			at.Add(field.Required(at.Path("").Key(l[0]), fmt.Sprintf("must be '%s'", l[1])))
		case got != l[1]:
			at.Add(field.Invalid(at.Path("").Key(l[0]), j.Spec.Template.Labels, fmt.Sprintf("must be '%s'", l[1])))
		}
	}
	if s, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !s.Matches(generated) {
		errs.Invalid("spec.selector", j.Spec.Selector, "`selector` not auto-generated")
	}
}

func validateSelector(s *batchv1.JobSpec, errs *resource.Errors) {
	if s.Selector == nil {
		errs.Required("spec.selector", "")
	} else {
		errs.Add(metavalidation.ValidateLabelSelector(s.Selector, metavalidation.LabelSelectorValidationOptions{}, errs.Path("spec.selector"))...)
	}
	if sel, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil && !sel.Matches(labels.Set(s.Template.Labels)) {
		errs.Invalid("spec.template.metadata.labels", s.Template.Labels, "`selector` does not match template `labels`")
	}
}

// validateJobSpec checks the spec of a job or of a cron job's template; errs is
// at the spec.
func validateJobSpec(s *batchv1.JobSpec, errs *resource.Errors) {
	errs.NonNegative("parallelism", int64(ptr.Deref(s.Parallelism, 0)))
	errs.NonNegative("completions", int64(ptr.Deref(s.Completions, 0)))
	errs.NonNegative("activeDeadlineSeconds", ptr.Deref(s.ActiveDeadlineSeconds, 0))
	errs.NonNegative("backoffLimit", int64(ptr.Deref(s.BackoffLimit, 0)))
	errs.NonNegative("ttlSecondsAfterFinished", int64(ptr.Deref(s.TTLSecondsAfterFinished, 0)))
	errs.NonNegative("backoffLimitPerIndex", int64(ptr.Deref(s.BackoffLimitPerIndex, 0)))
	if s.MaxFailedIndexes != nil {
		errs.NonNegative("maxFailedIndexes", int64(*s.MaxFailedIndexes))
		if s.BackoffLimitPerIndex == nil {
			errs.Required("backoffLimitPerIndex", "when maxFailedIndexes is specified")
		}
	}
	if s.ManagedBy != nil {
		errs.Add(validation.IsDomainPrefixedPath(errs.Path("managedBy"), *s.ManagedBy)...)
		if len(*s.ManagedBy) > maxManagedBy {
			errs.TooLong("managedBy", maxManagedBy)
		}
	}
	validateCompletionMode(s, errs)
	if s.PodFailurePolicy != nil {
		validateFailurePolicy(s, errs)
	}
	if s.SuccessPolicy != nil {
		if JobIndexed(s) {
			validateSuccessPolicy(s, errs)
		} else {
			errs.Invalid("successPolicy", s.SuccessPolicy, "requires indexed completion mode")
		}
	}
	validateReplacementPolicy(s, errs)
	podspec.ValidateTemplate(&s.Template, errs.At("template"))
	switch p := s.Template.Spec.RestartPolicy; {
	case p == corev1.RestartPolicyAlways, p == "":
		errs.Required("template.spec.restartPolicy", `valid values: "OnFailure", "Never"`)
	case p != corev1.RestartPolicyOnFailure && p != corev1.RestartPolicyNever:
		resource.NotSupported(errs, "template.spec.restartPolicy", p, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	case s.PodFailurePolicy != nil && p != corev1.RestartPolicyNever:
		errs.Invalid("template.spec.restartPolicy", p, `only "Never" is supported when podFailurePolicy is specified`)
	}
}

func validateCompletionMode(s *batchv1.JobSpec, errs *resource.Errors) {
	if m := s.CompletionMode; m != nil && *m != batchv1.NonIndexedCompletion && *m != batchv1.IndexedCompletion {
		resource.NotSupported(errs, "completionMode", *m, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
		return
	}
	if !JobIndexed(s) {
		if s.BackoffLimitPerIndex != nil {
			errs.Invalid("backoffLimitPerIndex", *s.BackoffLimitPerIndex, "requires indexed completion mode")
		}
		if s.MaxFailedIndexes != nil {
			errs.Invalid("maxFailedIndexes", *s.MaxFailedIndexes, "requires indexed completion mode")
		}
		return
	}
	completions, parallelism, failed := ptr.Deref(s.Completions, 0), ptr.Deref(s.Parallelism, 0), ptr.Deref(s.MaxFailedIndexes, 0)
	if s.Completions == nil {
		errs.Required("completions", "when completion mode is Indexed")
	}
	if parallelism > maxIndexedParallelism {
		errs.Invalid("parallelism", parallelism, "must be less than or equal to 100000 when completion mode is Indexed")
	}
	if s.Completions != nil && failed > completions {
		errs.Invalid("maxFailedIndexes", failed, "must be less than or equal to completions")
	}
	if failed > maxFailedIndexes {
		errs.Invalid("maxFailedIndexes", failed, "must be less than or equal to 100000")
	}
	if completions <= manyCompletions || s.BackoffLimitPerIndex == nil {
		return
	}
	if s.MaxFailedIndexes == nil {
		errs.Required("maxFailedIndexes", "must be specified when completions is above 100000")
	}
	if parallelism > maxOfMany {
		errs.Invalid("parallelism", parallelism, "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index")
	}
	if failed > maxOfMany {
		errs.Invalid("maxFailedIndexes", failed, "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index")
	}
}

func validateJobUpdate(obj, old *batchv1.Job, errs *resource.Errors) {
	s, o := &obj.Spec, &old.Spec
	if !JobIndexed(s) {
		validateSame(errs, "spec.completions", s.Completions, o.Completions)
	} else if s.Completions != nil && !equality.Semantic.DeepEqual(s.Completions, o.Completions) && *s.Completions != ptr.Deref(s.Parallelism, 0) {
		errs.Invalid("spec.completions", *s.Completions, "can only be modified in tandem with spec.parallelism")
	}
	validateSame(errs, "spec.selector", s.Selector, o.Selector)
	validateTemplateUpdate(obj, old, errs)
	validateSame(errs, "spec.completionMode", s.CompletionMode, o.CompletionMode)
	validateSame(errs, "spec.podFailurePolicy", s.PodFailurePolicy, o.PodFailurePolicy)
	validateSame(errs, "spec.backoffLimitPerIndex", s.BackoffLimitPerIndex, o.BackoffLimitPerIndex)
	validateSame(errs, "spec.managedBy", s.ManagedBy, o.ManagedBy)
	validateSame(errs, "spec.successPolicy", s.SuccessPolicy, o.SuccessPolicy)
}

// validateTemplateUpdate refuses changes of the pods, but for where they run and
// what they get while the job is suspended and has none.
func validateTemplateUpdate(obj, old *batchv1.Job, errs *resource.Errors) {
	t, o := &obj.Spec.Template, &old.Spec.Template
	held := ptr.Deref(old.Spec.Suspend, false) && (old.Status.StartTime == nil || JobIs(old, batchv1.JobSuspended))
	if !held || old.Status.Active > 0 {
		validateSame(errs, "spec.template", t, o)
		return
	}
	o = allowPlacement(t, o.DeepCopy())
	allowResources(t.Spec.Containers, o.Spec.Containers)
	allowResources(t.Spec.InitContainers, o.Spec.InitContainers)
	validateSame(errs, "spec.template.spec", &t.Spec, &o.Spec)
}

// allowPlacement makes old equal to t in all that says where pods may run.
func allowPlacement(t, old *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	switch {
	case t.Spec.Affinity == nil && old.Spec.Affinity != nil:
		old.Spec.Affinity.NodeAffinity = nil
		if *old.Spec.Affinity == (corev1.Affinity{}) {
			old.Spec.Affinity = nil
		}
	case t.Spec.Affinity != nil && old.Spec.Affinity == nil:
		old.Spec.Affinity = &corev1.Affinity{NodeAffinity: t.Spec.Affinity.NodeAffinity}
	case t.Spec.Affinity != nil:
		old.Spec.Affinity.NodeAffinity = t.Spec.Affinity.NodeAffinity
	}
	old.Annotations, old.Labels = t.Annotations, t.Labels
	old.Spec.NodeSelector, old.Spec.Tolerations, old.Spec.SchedulingGates = t.Spec.NodeSelector, t.Spec.Tolerations, t.Spec.SchedulingGates
	return old
}

func allowResources(now, old []corev1.Container) {
	if len(now) != len(old) {
		return
	}
	for i := range now {
		if now[i].Name == old[i].Name {
			old[i].Resources = now[i].Resources
		}
	}
}

func validateSame[T any](errs *resource.Errors, path string, now, old *T) {
	if !equality.Semantic.DeepEqual(now, old) {
		errs.Immutable(path, now)
	}
}
