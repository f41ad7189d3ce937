package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/kemudi/kemudi/internal/resource"
)

// validateAttributes checks what is asked about: exactly one of a resource and
// a path, and selectors in one of their two forms.
func validateAttributes(res *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes, errs *resource.Errors) {
	if res != nil && path != nil {
		errs.Invalid("spec.nonResourceAttributes", path, "cannot be specified in combination with resourceAttributes")
	}
	if res == nil && path == nil {
		errs.Invalid("spec.resourceAttributes", path, "exactly one of nonResourceAttributes or resourceAttributes must be specified")
	}
}

// validateSelectors lets operators pass that this server does not know: newer
// clients may ask with them, and get an answer as if the selector was wider.
func validateSelectors(res *authorizationv1.ResourceAttributes, errs *resource.Errors) {
	if res == nil {
		return
	}
	if s := res.FieldSelector; s != nil {
		const at = "spec.resourceAttributes.fieldSelector"
		validateForms(at, s.RawSelector, len(s.Requirements), errs.At(at))
		for i, r := range s.Requirements {
			opts := metavalidation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
			errs.Add(metavalidation.ValidateFieldSelectorRequirement(r, opts, errs.Path(at).Child("requirements").Index(i))...)
		}
	}
	if s := res.LabelSelector; s != nil {
		const at = "spec.resourceAttributes.labelSelector"
		validateForms(at, s.RawSelector, len(s.Requirements), errs.At(at))
		for i, r := range s.Requirements {
			opts := metavalidation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
			errs.Add(metavalidation.ValidateLabelSelectorRequirement(r, opts, errs.Path(at).Child("requirements").Index(i))...)
		}
	}
}

func validateForms(path, raw string, requirements int, errs *resource.Errors) {
	if raw != "" && requirements > 0 {
		errs.Invalid("rawSelector", raw, "may not specified at the same time as requirements")
	}
	if raw == "" && requirements == 0 {
		errs.Required("requirements", "when "+path+" is specified, requirements or rawSelector is required")
	}
}

// validateSubjectSpec checks a question about somebody.
func validateSubjectSpec(s *authorizationv1.SubjectAccessReviewSpec, errs *resource.Errors) {
	validateAttributes(s.ResourceAttributes, s.NonResourceAttributes, errs)
	if s.User == "" && len(s.Groups) == 0 {
		errs.Invalid("spec.user", s.User, "at least one of user or group must be specified")
	}
	validateSelectors(s.ResourceAttributes, errs)
}

// validateNoMeta refuses metadata, as a question has none.
func validateNoMeta(meta metav1.ObjectMeta, detail string, errs *resource.Errors) {
	rest := meta
	rest.ManagedFields = nil
	if !equality.Semantic.DeepEqual(metav1.ObjectMeta{}, rest) {
		errs.Invalid("metadata", meta, detail)
	}
}
