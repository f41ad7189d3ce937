package apps

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// validateSelected checks what every workload of this group has in common: a
// selector that is there, selects something and selects the template's pods,
// and a template whose pods may run for ever. kind goes into the messages.
func validateSelected(kind string, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec, errs *resource.Errors) {
	if selector == nil {
		errs.Required("spec.selector", "")
	} else {
		errs.Add(metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, errs.Path("spec.selector"))...)
		if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
			errs.Invalid("spec.selector", selector, "empty selector is invalid for "+kind)
		}
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		errs.Invalid("spec.selector", selector, "invalid label selector")
	} else if !s.Empty() && !s.Matches(labels.Set(template.Labels)) {
		errs.Invalid("spec.template.metadata.labels", template.Labels, "`selector` does not match template `labels`")
	}
}

// validateTemplate checks a template that no part of is filled in later.
func validateTemplate(template *corev1.PodTemplateSpec, errs *resource.Errors) {
	podspec.ValidateTemplate(template, errs.At("spec.template"))
}

// validateSameSelector refuses a change of spec.selector.
func validateSameSelector(selector, old *metav1.LabelSelector, errs *resource.Errors) {
	if !equality.Semantic.DeepEqual(selector, old) {
		errs.Immutable("spec.selector", selector)
	}
}

// notDecremented refuses a collision count that goes back: names made from it
// would come up a second time.
func notDecremented(count, old *int32, errs *resource.Errors) {
	if old == nil || count != nil && *count >= *old {
		return
	}
	now := int32(0)
	if count != nil {
		now = *count
	}
	errs.Invalid("status.collisionCount", now, "cannot be decremented")
}
