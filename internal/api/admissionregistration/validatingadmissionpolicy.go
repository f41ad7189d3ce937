package admissionregistration

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/cel/request"
	"github.com/kemudi/kemudi/internal/resource"
)

// ValidatingAdmissionPolicies say by expressions which writes are refused. They do so where a
// binding puts them in force.
var ValidatingAdmissionPolicies = resource.Define(resource.Spec[*admissionregistrationv1.ValidatingAdmissionPolicy]{
	Names: resource.Names{
		Group: Group, Version: "v1", Kind: "ValidatingAdmissionPolicy", Plural: "validatingadmissionpolicies", Categories: []string{"api-extensions"}, NameRule: apiName,
	},
	HasGeneration: true,
	Update:        resource.UpdateNeedsRevision,
	Default: func(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
		p.Spec.FailurePolicy = or(p.Spec.FailurePolicy, admissionregistrationv1.Fail)
		defaultMatch(p.Spec.MatchConstraints)
	},
	Prepare: func(p, old *admissionregistrationv1.ValidatingAdmissionPolicy) {
		p.Status = admissionregistrationv1.ValidatingAdmissionPolicyStatus{}
		if old != nil {
			p.Status = old.Status
		}
	},
	Validate: validateValidatingPolicy,
	Columns: []resource.Column[*admissionregistrationv1.ValidatingAdmissionPolicy]{
		{Name: "Validations", Type: "integer", Description: "Validations indicates the number of validation rules defined in this configuration", Value: func(p *admissionregistrationv1.ValidatingAdmissionPolicy) any {
			return int64(len(p.Spec.Validations))
		}},
		{Name: "ParamKind", Description: "ParamKind specifies the kind of resources used to parameterize this policy", Value: func(p *admissionregistrationv1.ValidatingAdmissionPolicy) any { return shownKind(p.Spec.ParamKind) }},
	},
	Sub: []resource.Sub[*admissionregistrationv1.ValidatingAdmissionPolicy]{{
		Name: "status", Keeps: resource.KeepsMetadata,
		Merge:    func(p, old *admissionregistrationv1.ValidatingAdmissionPolicy) { p.Spec = old.Spec },
		Validate: validateValidatingStatus,
	}},
	Versions: []resource.Version[*admissionregistrationv1.ValidatingAdmissionPolicy]{
		resource.SameWire[*admissionregistrationv1beta1.ValidatingAdmissionPolicy](resource.Version[*admissionregistrationv1.ValidatingAdmissionPolicy]{
			Group: Group, Version: "v1beta1", OffByDefault: true,
			Deprecated: "admissionregistration.k8s.io/v1beta1 ValidatingAdmissionPolicy is deprecated in v1.31+, unavailable in v1.34+",
		}),
		resource.SameWire[*admissionregistrationv1alpha1.ValidatingAdmissionPolicy](resource.Version[*admissionregistrationv1.ValidatingAdmissionPolicy]{
			Group: Group, Version: "v1alpha1", OffByDefault: true,
			Deprecated: "admissionregistration.k8s.io/v1alpha1 ValidatingAdmissionPolicy is deprecated in v1.29+, unavailable in v1.32+",
		}),
	},
})

// Bounds of the audit annotations of a policy.
const (
	maxAnnotations       = 20
	maxAnnotationExpress = 5 << 10 // bytes
)

func validateValidatingPolicy(p, old *admissionregistrationv1.ValidatingAdmissionPolicy, errs *resource.Errors) {
	s := &p.Spec
	of := policyRules{params: s.ParamKind != nil, scope: &request.Scope{Mode: request.New, Params: s.ParamKind != nil}}
	if old != nil {
		of.scope.Known = validatingExpressions(&old.Spec)
		of.sameConditions = sameParamKind(s.ParamKind, old.Spec.ParamKind) && sameConditions(s.MatchConditions, old.Spec.MatchConditions)
	}
	at := errs.At("spec")
	of.head(at, policyHead{s.FailurePolicy, s.ParamKind, s.MatchConstraints, s.MatchConditions, s.Variables})
	if len(s.Validations) == 0 && len(s.AuditAnnotations) == 0 {
		at.Required("validations", "validations or auditAnnotations must contain at least one item")
		at.Required("auditAnnotations", "validations or auditAnnotations must contain at least one item")
		return
	}
	for i := range s.Validations {
		of.validation(errs.At("spec.validations[%d]", i), &s.Validations[i])
	}
	if len(s.AuditAnnotations) > maxAnnotations {
		at.Invalid("auditAnnotations", s.AuditAnnotations, fmt.Sprintf("must not have more than %d auditAnnotations", maxAnnotations))
	}
	keys := map[string]bool{}
	for i := range s.AuditAnnotations {
		a, one := &s.AuditAnnotations[i], errs.At("spec.auditAnnotations[%d]", i)
		of.annotation(one, p.Name, a)
		if keys[a.Key] {
			one.Duplicate("key", a.Key)
		}
		keys[a.Key] = true
	}
}

// validatingExpressions are those that a stored policy has: they were valid once.
func validatingExpressions(s *admissionregistrationv1.ValidatingAdmissionPolicySpec) map[string]bool {
	all := map[string]bool{}
	for i := range s.MatchConditions {
		all[strings.TrimSpace(s.MatchConditions[i].Expression)] = true
	}
	for i := range s.Variables {
		all[s.Variables[i].Expression] = true
	}
	for i := range s.Validations {
		all[s.Validations[i].Expression], all[s.Validations[i].MessageExpression] = true, true
	}
	for i := range s.AuditAnnotations {
		all[strings.TrimSpace(s.AuditAnnotations[i].ValueExpression)] = true
	}
	return all
}

func (r *policyRules) validation(errs *resource.Errors, v *admissionregistrationv1.Validation) {
	if strings.TrimSpace(v.Expression) == "" {
		errs.Required("expression", "expression is not specified")
	} else {
		_, err := r.scope.Compile(v.Expression, true, cel.BoolType)
		refuseExpression(errs, "expression", v.Expression, err)
	}
	if v.MessageExpression != "" {
		if strings.TrimSpace(v.MessageExpression) == "" {
			errs.Invalid("messageExpression", v.MessageExpression, "must be non-empty if specified")
		} else {
			_, err := r.scope.Compile(v.MessageExpression, false, cel.StringType)
			refuseExpression(errs, "messageExpression", v.MessageExpression, err)
		}
	}
	switch message := strings.TrimSpace(v.Message); {
	case v.Message != "" && message == "":
		errs.Invalid("message", v.Message, "must be non-empty if specified")
	case strings.ContainsAny(message, "\n\r"):
		errs.Invalid("message", v.Message, "must not contain line breaks")
	}
	if v.Reason != nil {
		check.OneOf(errs, "reason", *v.Reason, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)
	}
}

func (r *policyRules) annotation(errs *resource.Errors, policy string, a *admissionregistrationv1.AuditAnnotation) {
	if policy == "" {
		errs.Invalid("key", a.Key, "requires metadata.name be non-empty")
	} else {
		check.QualifiedName(errs, "key", policy+"/"+a.Key)
	}
	switch text := strings.TrimSpace(a.ValueExpression); {
	case text == "":
		errs.Required("valueExpression", "valueExpression is not specified")
	case len(text) > maxAnnotationExpress:
		errs.Required("valueExpression", fmt.Sprintf("must not exceed %d bytes in length", maxAnnotationExpress))
	default:
		_, err := r.scope.Compile(text, true, cel.StringType, cel.NullType)
		refuseExpression(errs, "valueExpression", a.ValueExpression, err)
	}
}

func validateValidatingStatus(p, _ *admissionregistrationv1.ValidatingAdmissionPolicy, errs *resource.Errors) {
	if t := p.Status.TypeChecking; t != nil {
		for i := range t.ExpressionWarnings {
			w, one := &t.ExpressionWarnings[i], errs.At("status.typeChecking.expressionWarnings[%d]", i)
			if w.Warning == "" {
				one.Required("warning", "")
			}
			ref := strings.TrimSpace(w.FieldRef)
			if ref == "" {
				one.Required("fieldRef", "")
			} else if err := jsonpath.New("spec").Parse("{" + ref + "}"); err != nil {
				one.Invalid("fieldRef", ref, "invalid JSONPath: "+err.Error())
			}
		}
	}
	errs.Add(metavalidation.ValidateConditions(p.Status.Conditions, errs.Path("status.conditions"))...)
}
