package admissionregistration

import "github.com/kemudi/kemudi/internal/resource"

// Group is the API group.
const Group = "admissionregistration.k8s.io"

// All lists the resources of admissionregistration.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		MutatingAdmissionPolicies.Def,
		MutatingAdmissionPolicyBindings.Def,
		MutatingWebhookConfigurations.Def,
		ValidatingAdmissionPolicies.Def,
		ValidatingAdmissionPolicyBindings.Def,
		ValidatingWebhookConfigurations.Def,
	}
}
