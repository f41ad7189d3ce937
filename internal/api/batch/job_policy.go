package batch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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
		list, err := parseIndexes(*text, completions)
		if err != nil {
			errs.Invalid("succeededIndexes", *text, "error parsing succeededIndexes: "+err.Error())
		}
		for _, in := range list {
			total += in.last - in.first + 1
		}
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

// interval is the indexes from first to last.
type interval struct{ first, last int32 }

// parseIndexes reads "1,3-5,7": growing intervals below completions.
func parseIndexes(text string, completions int32) ([]interval, error) {
	if text == "" {
		return nil, nil
	}
	var list []interval
	for part := range strings.SplitSeq(text, ",") {
		in, err := parseInterval(part, completions)
		if err != nil {
			return nil, err
		}
		if n := len(list); n > 0 && list[n-1].last >= in.first {
			return nil, fmt.Errorf("non-increasing order, previous: %d, current: %d", list[n-1].last, in.first)
		}
		list = append(list, in)
	}
	return list, nil
}

func parseInterval(text string, completions int32) (interval, error) {
	ends := strings.Split(text, "-")
	if len(ends) > 2 {
		return interval{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", text)
	}
	numbers := make([]int32, len(ends))
	for i, end := range ends {
		n, err := strconv.ParseInt(end, 10, 32)
		if err != nil {
			return interval{}, fmt.Errorf("cannot convert string to integer for index: %q", end)
		}
		if int32(n) >= completions {
			return interval{}, fmt.Errorf("too large index: %q", end)
		}
		numbers[i] = int32(n)
	}
	if len(numbers) == 1 {
		return interval{numbers[0], numbers[0]}, nil
	}
	if numbers[0] >= numbers[1] {
		return interval{}, fmt.Errorf("non-increasing order, previous: %d, current: %d", numbers[0], numbers[1])
	}
	return interval{numbers[0], numbers[1]}, nil
}
