package admissionregistration

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/cel/request"
	"github.com/kemudi/kemudi/internal/resource"
)

// MutatingAdmissionPolicies say by expressions how what is written is changed. They do so
// where a binding puts them in force.
var MutatingAdmissionPolicies = resource.Define(resource.Spec[*admissionregistrationv1.MutatingAdmissionPolicy]{
	Names: resource.Names{
		Group: Group, Version: "v1", Kind: "MutatingAdmissionPolicy", Plural: "mutatingadmissionpolicies", Categories: []string{"api-extensions"}, NameRule: apiName,
	},
	HasGeneration: true,
	Update:        resource.UpdateNeedsRevision,
	Default: func(p *admissionregistrationv1.MutatingAdmissionPolicy) {
		p.Spec.FailurePolicy = or(p.Spec.FailurePolicy, admissionregistrationv1.Fail)
		defaultMatch(p.Spec.MatchConstraints)
	},
	Validate: validateMutatingPolicy,
	Columns: []resource.Column[*admissionregistrationv1.MutatingAdmissionPolicy]{
		{Name: "Mutations", Type: "integer", Description: "Mutations indicates the number of mutations rules defined in this configuration", Value: func(p *admissionregistrationv1.MutatingAdmissionPolicy) any {
			return int64(len(p.Spec.Mutations))
		}},
		{Name: "ParamKind", Description: "ParamKind specifies the kind of resources used to parameterize this policy", Value: func(p *admissionregistrationv1.MutatingAdmissionPolicy) any { return shownKind(p.Spec.ParamKind) }},
	},
	Versions: []resource.Version[*admissionregistrationv1.MutatingAdmissionPolicy]{
		resource.SameWire[*admissionregistrationv1beta1.MutatingAdmissionPolicy](resource.Version[*admissionregistrationv1.MutatingAdmissionPolicy]{
			Group: Group, Version: "v1beta1", OffByDefault: true,
			Deprecated: "admissionregistration.k8s.io/v1beta1 MutatingAdmissionPolicy is deprecated in v1.37+, unavailable in v1.40+; use admissionregistration.k8s.io/v1 MutatingAdmissionPolicy",
		}),
		resource.SameWire[*admissionregistrationv1alpha1.MutatingAdmissionPolicy](resource.Version[*admissionregistrationv1.MutatingAdmissionPolicy]{
			Group: Group, Version: "v1alpha1", OffByDefault: true,
			Deprecated: "admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicy is deprecated in v1.35+, unavailable in v1.38+",
		}),
	},
})

func validateMutatingPolicy(p, old *admissionregistrationv1.MutatingAdmissionPolicy, errs *resource.Errors) {
	s := &p.Spec
	of := policyRules{params: s.ParamKind != nil, scope: &request.Scope{Mode: request.New, Params: s.ParamKind != nil}}
	if old != nil {
		of.scope.Known = mutatingExpressions(&old.Spec)
		of.sameConditions = sameParamKind(s.ParamKind, old.Spec.ParamKind) && sameConditions(s.MatchConditions, old.Spec.MatchConditions)
	}
	at := errs.At("spec")
	of.head(at, policyHead{s.FailurePolicy, s.ParamKind, s.MatchConstraints, s.MatchConditions, s.Variables})
	if s.MatchConstraints != nil {
		mutableOperations(at, "matchConstraints.resourceRules.operations", s.MatchConstraints.ResourceRules)
	}
	if len(s.Mutations) == 0 {
		at.Required("mutations", "mutations must contain at least one item")
	}
	for i := range s.Mutations {
		of.mutation(errs.At("spec.mutations[%d]", i), &s.Mutations[i])
	}
	if s.ReinvocationPolicy == "" {
		at.Required("reinvocationPolicy", "")
	} else {
		check.OneOf(at, "reinvocationPolicy", s.ReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	}
}

// mutatingExpressions are those that a stored policy has: they were valid once.
func mutatingExpressions(s *admissionregistrationv1.MutatingAdmissionPolicySpec) map[string]bool {
	all := map[string]bool{}
	for i := range s.MatchConditions {
		all[strings.TrimSpace(s.MatchConditions[i].Expression)] = true
	}
	for i := range s.Variables {
		all[s.Variables[i].Expression] = true
	}
	for i := range s.Mutations {
		m := &s.Mutations[i]
		if m.ApplyConfiguration != nil {
			all[strings.TrimSpace(m.ApplyConfiguration.Expression)] = true
		}
		if m.JSONPatch != nil {
			all[strings.TrimSpace(m.JSONPatch.Expression)] = true
		}
	}
	return all
}

// mutableOperations refuses rules for deletes: there is nothing to change.
func mutableOperations(errs *resource.Errors, at string, rules []admissionregistrationv1.NamedRuleWithOperations) {
	allowed := []admissionregistrationv1.OperationType{
		admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Update,
	}
	for i := range rules {
		for _, op := range rules[i].Operations {
			if !slices.Contains(allowed, op) {
				resource.NotSupported(errs, at, op, allowed...)
			}
		}
	}
}

func (r *policyRules) mutation(errs *resource.Errors, m *admissionregistrationv1.Mutation) {
	switch m.PatchType {
	case "":
		errs.Required("patchType", "")
	case admissionregistrationv1.PatchTypeApplyConfiguration:
		if m.JSONPatch != nil {
			errs.Invalid("jsonPatch", "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration")
		}
		if m.ApplyConfiguration == nil {
			errs.Required("applyConfiguration", "must be specified when patchType is ApplyConfiguration")
			return
		}
		if text := strings.TrimSpace(m.ApplyConfiguration.Expression); text == "" {
			errs.Required("applyConfiguration.expression", "")
		} else {
			_, err := r.scope.CompileApplied(text)
			refuseExpression(errs, "applyConfiguration.expression", text, err)
		}
	case admissionregistrationv1.PatchTypeJSONPatch:
		if m.ApplyConfiguration != nil {
			errs.Invalid("applyConfiguration", "{applyConfiguration}", "must not be specified when patchType is JSONPatch")
		}
		if m.JSONPatch == nil {
			errs.Required("jsonPatch", "must be specified when patchType is JSONPatch")
			return
		}
		if text := strings.TrimSpace(m.JSONPatch.Expression); text == "" {
			errs.Required("jsonPatch.expression", "")
		} else {
			_, err := r.scope.CompileOperations(text)
			refuseExpression(errs, "jsonPatch.expression", text, err)
		}
	default:
		resource.NotSupported(errs, "patchType", m.PatchType, admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch)
	}
}
