package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// MutatingAdmissionPolicyBindings put policies that change writes in force: for which writes,
// and with which params.
var MutatingAdmissionPolicyBindings = resource.Define(resource.Spec[*admissionregistrationv1.MutatingAdmissionPolicyBinding]{
	Names: resource.Names{
		Group: Group, Version: "v1", Kind: "MutatingAdmissionPolicyBinding", Plural: "mutatingadmissionpolicybindings", Categories: []string{"api-extensions"}, NameRule: apiName,
	},
	HasGeneration: true,
	Update:        resource.UpdateNeedsRevision,
	Default: func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
		defaultMatch(b.Spec.MatchResources)
	},
	Validate: func(b, _ *admissionregistrationv1.MutatingAdmissionPolicyBinding, errs *resource.Errors) {
		at := errs.At("spec")
		bindingHead{b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources}.validate(at)
		if m := b.Spec.MatchResources; m != nil {
			mutableOperations(at, "matchResources.resourceRules.operations", m.ResourceRules)
		}
	},
	Columns: []resource.Column[*admissionregistrationv1.MutatingAdmissionPolicyBinding]{
		{Name: "PolicyName", Description: "PolicyName indicates the policy definition which the policy binding binded to", Value: func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) any { return b.Spec.PolicyName }},
		{Name: "ParamRef", Description: "ParamRef indicates the param resource which sets the configration param", Value: func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) any {
			return shownParams(b.Spec.ParamRef)
		}},
	},
	Versions: []resource.Version[*admissionregistrationv1.MutatingAdmissionPolicyBinding]{
		resource.SameWire[*admissionregistrationv1beta1.MutatingAdmissionPolicyBinding](resource.Version[*admissionregistrationv1.MutatingAdmissionPolicyBinding]{
			Group: Group, Version: "v1beta1", OffByDefault: true,
			Deprecated: "admissionregistration.k8s.io/v1beta1 MutatingAdmissionPolicyBinding is deprecated in v1.37+, unavailable in v1.40+; use admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding",
		}),
		resource.SameWire[*admissionregistrationv1alpha1.MutatingAdmissionPolicyBinding](resource.Version[*admissionregistrationv1.MutatingAdmissionPolicyBinding]{
			Group: Group, Version: "v1alpha1", OffByDefault: true,
			Deprecated: "admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicyBinding is deprecated in v1.35+, unavailable in v1.38+",
		}),
	},
})
