package admissionregistration

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// ValidatingAdmissionPolicyBindings put policies in force: for which writes, with which
// params, and what happens to a write that one refuses.
var ValidatingAdmissionPolicyBindings = resource.Define(resource.Spec[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]{
	Names: resource.Names{
		Group: Group, Version: "v1", Kind: "ValidatingAdmissionPolicyBinding", Plural: "validatingadmissionpolicybindings", Categories: []string{"api-extensions"}, NameRule: apiName,
	},
	HasGeneration: true,
	Update:        resource.UpdateNeedsRevision,
	Default: func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
		defaultMatch(b.Spec.MatchResources)
	},
	Validate: func(b, _ *admissionregistrationv1.ValidatingAdmissionPolicyBinding, errs *resource.Errors) {
		at := errs.At("spec")
		bindingHead{b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources}.validate(at)
		validateActions(at, b.Spec.ValidationActions)
	},
	Columns: []resource.Column[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]{
		{Name: "PolicyName", Description: "PolicyName indicates the policy definition which the policy binding binded to", Value: func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) any { return b.Spec.PolicyName }},
		{Name: "ParamRef", Description: "ParamRef indicates the param resource which sets the configration param", Value: func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) any {
			return shownParams(b.Spec.ParamRef)
		}},
	},
	Versions: []resource.Version[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]{
		resource.SameWire[*admissionregistrationv1beta1.ValidatingAdmissionPolicyBinding](resource.Version[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]{
			Group: Group, Version: "v1beta1", OffByDefault: true,
			Deprecated: "admissionregistration.k8s.io/v1beta1 ValidatingAdmissionPolicyBinding is deprecated in v1.31+, unavailable in v1.34+",
		}),
		resource.SameWire[*admissionregistrationv1alpha1.ValidatingAdmissionPolicyBinding](resource.Version[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]{
			Group: Group, Version: "v1alpha1", OffByDefault: true,
			Deprecated: "admissionregistration.k8s.io/v1alpha1 ValidatingAdmissionPolicyBinding is deprecated in v1.29+, unavailable in v1.32+",
		}),
	},
})

func validateActions(errs *resource.Errors, actions []admissionregistrationv1.ValidationAction) {
	for i, action := range actions {
		at := errs.At("validationActions[%d]", i)
		check.OneOf(at, "", action, admissionregistrationv1.Audit, admissionregistrationv1.Deny, admissionregistrationv1.Warn)
		if slices.Contains(actions[:i], action) {
			at.Duplicate("", action)
		}
	}
	if slices.Contains(actions, admissionregistrationv1.Deny) && slices.Contains(actions, admissionregistrationv1.Warn) {
		errs.Invalid("validationActions", actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)")
	}
	if len(actions) == 0 {
		errs.Required("validationActions", "at least one validation action is required")
	}
}
