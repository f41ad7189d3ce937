package policy

import (
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/resource"
)

// PodDisruptionBudgets limit voluntary evictions.
var PodDisruptionBudgets = resource.Define(resource.Spec[*policyv1.PodDisruptionBudget]{
	Names:         resource.Names{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget", Plural: "poddisruptionbudgets", Short: []string{"pdb"}, Namespaced: true},
	HasGeneration: true,
	Update:        resource.UpdateNeedsRevision,
	Prepare: func(obj, old *policyv1.PodDisruptionBudget) {
		if old == nil {
			obj.Status = policyv1.PodDisruptionBudgetStatus{}
			return
		}
		obj.Status = old.Status
	},
	Validate: validateBudget,
	Columns: []resource.Column[*policyv1.PodDisruptionBudget]{
		{Name: "Min Available", Description: "The minimum number of pods that must be available.", Value: func(b *policyv1.PodDisruptionBudget) any { return orNA(b.Spec.MinAvailable) }},
		{Name: "Max Unavailable", Description: "The maximum number of pods that may be unavailable.", Value: func(b *policyv1.PodDisruptionBudget) any { return orNA(b.Spec.MaxUnavailable) }},
		{Name: "Allowed Disruptions", Type: "integer", Description: "Calculated number of pods that may be disrupted at this time.", Value: func(b *policyv1.PodDisruptionBudget) any { return int64(b.Status.DisruptionsAllowed) }},
	},
	Sub: []resource.Sub[*policyv1.PodDisruptionBudget]{{
		Name:     "status",
		Merge:    func(obj, old *policyv1.PodDisruptionBudget) { obj.Spec = old.Spec },
		Validate: validateBudgetStatus,
	}},
	Versions: []resource.Version[*policyv1.PodDisruptionBudget]{withEmptySelector(resource.SameWire[*policyv1beta1.PodDisruptionBudget](resource.Version[*policyv1.PodDisruptionBudget]{
		Group: "policy", Version: "v1beta1",
		Deprecated: "policy/v1beta1 PodDisruptionBudget is deprecated in v1.21+, unavailable in v1.25+; use policy/v1 PodDisruptionBudget",
	}))},
})

func validateBudget(obj, _ *policyv1.PodDisruptionBudget, errs *resource.Errors) {
	s := &obj.Spec
	if s.MinAvailable != nil && s.MaxUnavailable != nil {
		errs.Invalid("spec", s, "minAvailable and maxUnavailable cannot be both set")
	}
	if s.MinAvailable != nil {
		errs.IntOrPercent("spec.minAvailable", *s.MinAvailable)
		errs.AtMost100Percent("spec.minAvailable", *s.MinAvailable)
	}
	if s.MaxUnavailable != nil {
		errs.IntOrPercent("spec.maxUnavailable", *s.MaxUnavailable)
		errs.AtMost100Percent("spec.maxUnavailable", *s.MaxUnavailable)
	}
	errs.Add(metavalidation.ValidateLabelSelector(s.Selector, metavalidation.LabelSelectorValidationOptions{}, errs.Path("spec.selector"))...)
	if p := s.UnhealthyPodEvictionPolicy; p != nil && *p != policyv1.AlwaysAllow && *p != policyv1.IfHealthyBudget {
		resource.NotSupported(errs, "spec.unhealthyPodEvictionPolicy", *p, policyv1.AlwaysAllow, policyv1.IfHealthyBudget)
	}
}

func validateBudgetStatus(obj, _ *policyv1.PodDisruptionBudget, errs *resource.Errors) {
	s := &obj.Status
	errs.Add(metavalidation.ValidateConditions(s.Conditions, errs.Path("status.conditions"))...)
	errs.NonNegative("status.disruptionsAllowed", int64(s.DisruptionsAllowed))
	errs.NonNegative("status.currentHealthy", int64(s.CurrentHealthy))
	errs.NonNegative("status.desiredHealthy", int64(s.DesiredHealthy))
	errs.NonNegative("status.expectedPods", int64(s.ExpectedPods))
}

func orNA(v *intstr.IntOrString) string {
	if v == nil {
		return "N/A"
	}
	return v.String()
}

// An empty selector selects nothing in v1beta1 and everything in v1. The other
// meaning is written, in either version, as a requirement on a label that no
// pod has.
const emptySelectorLabel = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

func labelRequirement(op metav1.LabelSelectorOperator) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: emptySelectorLabel, Operator: op}}}
}

// withEmptySelector keeps what an empty selector means when versions change.
func withEmptySelector(v resource.Version[*policyv1.PodDisruptionBudget]) resource.Version[*policyv1.PodDisruptionBudget] {
	to, from := v.To, v.From
	v.To = func(obj resource.Object) (*policyv1.PodDisruptionBudget, error) {
		out, err := to(obj)
		if err != nil {
			return nil, err
		}
		switch {
		case equality.Semantic.DeepEqual(out.Spec.Selector, &metav1.LabelSelector{}):
			out.Spec.Selector = labelRequirement(metav1.LabelSelectorOpExists)
		case equality.Semantic.DeepEqual(out.Spec.Selector, labelRequirement(metav1.LabelSelectorOpDoesNotExist)):
			out.Spec.Selector = &metav1.LabelSelector{}
		}
		return out, nil
	}
	v.From = func(obj *policyv1.PodDisruptionBudget) (resource.Object, error) {
		out, err := from(obj)
		if err != nil {
			return nil, err
		}
		b := out.(*policyv1beta1.PodDisruptionBudget)
		switch {
		case equality.Semantic.DeepEqual(b.Spec.Selector, labelRequirement(metav1.LabelSelectorOpExists)):
			b.Spec.Selector = &metav1.LabelSelector{}
		case equality.Semantic.DeepEqual(b.Spec.Selector, &metav1.LabelSelector{}):
			b.Spec.Selector = labelRequirement(metav1.LabelSelectorOpDoesNotExist)
		}
		return b, nil
	}
	return v
}
