package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// How much the policies of a job may hold.
const (
	maxFailureRules     = 20
	maxSuccessRules     = 20
	maxExitCodes        = 255
	maxPodConditions    = 20
	maxSucceededIndexes = 64 << 10 // bytes
)

func validateFailurePolicy(s *batchv1.JobSpec, errs *resource.Errors) {
	rules := s.PodFailurePolicy.Rules
	if len(rules) > maxFailureRules {
		errs.TooMany("podFailurePolicy.rules", len(rules), maxFailureRules)
	}
	for i := range rules {
		validateFailureRule(s, &rules[i], errs.At("podFailurePolicy.rules[%d]", i))
	}
}

func validateFailureRule(s *batchv1.JobSpec, r *batchv1.PodFailurePolicyRule, errs *resource.Errors) {
	switch r.Action {
	case batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore:
	case batchv1.PodFailurePolicyActionFailIndex:
		if s.BackoffLimitPerIndex == nil {
			errs.Invalid("action", r.Action, "requires the backoffLimitPerIndex to be set")
		}
	case "":
		errs.Required("action", `valid values: ["Count" "FailIndex" "FailJob" "Ignore"]`)
	default:
		resource.NotSupported(errs, "action", r.Action, batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
			batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)
	}
	if r.OnExitCodes != nil {
		validateExitCodes(s, r.OnExitCodes, errs.At("onExitCodes"))
	}
	if len(r.OnPodConditions) > maxPodConditions {
		errs.TooMany("onPodConditions", len(r.OnPodConditions), maxPodConditions)
	}
	for i, c := range r.OnPodConditions {
		at := errs.At("onPodConditions[%d]", i)
		at.Refuse("type", c.Type, validation.IsQualifiedName(string(c.Type)))
		switch c.Status {
		case corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
		case "":
			at.Required("status", `valid values: ["False" "True" "Unknown"]`)
		default:
			resource.NotSupported(at, "status", c.Status, corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)
		}
	}
	switch codes, conditions := r.OnExitCodes != nil, len(r.OnPodConditions) > 0; {
	case codes && conditions:
		errs.Invalid("", field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported")
	case !codes && !conditions:
		errs.Invalid("", field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required")
	}
}

func validateExitCodes(s *batchv1.JobSpec, r *batchv1.PodFailurePolicyOnExitCodesRequirement, errs *resource.Errors) {
	switch r.Operator {
	case batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn:
	case "":
		errs.Required("operator", `valid values: ["In" "NotIn"]`)
	default:
		resource.NotSupported(errs, "operator", r.Operator, batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	}
	if name := r.ContainerName; name != nil && !hasContainer(&s.Template.Spec, *name) {
		errs.Invalid("containerName", *name, "must be one of the container or initContainer names in the pod template")
	}
	if len(r.Values) == 0 {
		errs.Invalid("values", r.Values, "at least one value is required")
	} else if len(r.Values) > maxExitCodes {
		errs.TooMany("values", len(r.Values), maxExitCodes)
	}
	for i, v := range r.Values {
		at := errs.At("values[%d]", i)
		if r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && v == 0 {
			at.Invalid("", v, "must not be 0 for the In operator")
		}
		if slices.Contains(r.Values[:i], v) {
			at.Duplicate("", v)
		}
	}
	if !slices.IsSorted(r.Values) {
		errs.Invalid("values", r.Values, "must be ordered")
	}
}

func hasContainer(s *corev1.PodSpec, name string) bool {
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(s.Containers, named) || slices.ContainsFunc(s.InitContainers, named)
}

func validateReplacementPolicy(s *batchv1.JobSpec, errs *resource.Errors) {
	p := s.PodReplacementPolicy
	switch {
	case p == nil, *p == batchv1.Failed:
	case s.PodFailurePolicy != nil:
		resource.NotSupported(errs, "podReplacementPolicy", *p, batchv1.Failed)
	case *p != batchv1.TerminatingOrFailed:
		resource.NotSupported(errs, "podReplacementPolicy", *p, batchv1.Failed, batchv1.TerminatingOrFailed)
	}
}

func validateSuccessPolicy(s *batchv1.JobSpec, errs *resource.Errors) {
	rules := s.SuccessPolicy.Rules
	if len(rules) == 0 {
		errs.Required("successPolicy.rules", "at least one rules must be specified when the successPolicy is specified")
	}
	if len(rules) > maxSuccessRules {
		errs.TooMany("successPolicy.rules", len(rules), maxSuccessRules)
	}
	completions := ptr.Deref(s.Completions, 0)
	for i := range rules {
		validateSuccessRule(&rules[i], completions, errs.At("successPolicy.rules[%d]", i))
	}
}

func validateSuccessRule(r *batchv1.SuccessPolicyRule, completions int32, errs *resource.Errors) {
	if r.SucceededCount == nil && r.SucceededIndexes == nil {
		errs.Required("", "at least one of succeededCount or succeededIndexes must be specified")
	}
	var total int32
	if text := r.SucceededIndexes; text != nil {
		if len(*text) > maxSucceededIndexes {
			errs.TooLong("succeededIndexes", maxSucceededIndexes)
		}
		list, err := ParseIndexes(*text, completions)
		if err != nil {
			errs.Invalid("succeededIndexes", *text, "error parsing succeededIndexes: "+err.Error())
		}
		total = list.Total()
	}
	if n := r.SucceededCount; n != nil {
		errs.NonNegative("succeededCount", int64(*n))
		if *n > completions {
			errs.Invalid("succeededCount", *n, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions))
		}
		if r.SucceededIndexes != nil && *n > total {
			errs.Invalid("succeededCount", *n, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total))
		}
	}
}
