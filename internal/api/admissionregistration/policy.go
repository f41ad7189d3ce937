package admissionregistration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/cel/request"
	"github.com/kemudi/kemudi/internal/resource"
)

// What policies of both kinds share.

func defaultMatch(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	m.MatchPolicy = or(m.MatchPolicy, admissionregistrationv1.Equivalent)
	m.NamespaceSelector, m.ObjectSelector = or(m.NamespaceSelector, metav1.LabelSelector{}), or(m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			rules[i].Scope = or(rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

// shownKind is a param kind in a table.
func shownKind(k *admissionregistrationv1.ParamKind) string {
	if k == nil {
		return "<unset>"
	}
	return k.APIVersion + "/" + k.Kind
}

// policyRules are how the expressions of one policy are looked at.
type policyRules struct {
	params         bool
	scope          *request.Scope
	sameConditions bool // as the stored ones, which are not compiled again
}

// policyHead is what policies of both kinds begin with.
type policyHead struct {
	failure    *admissionregistrationv1.FailurePolicyType
	params     *admissionregistrationv1.ParamKind
	match      *admissionregistrationv1.MatchResources
	conditions []admissionregistrationv1.MatchCondition
	variables  []admissionregistrationv1.Variable
}

func (r *policyRules) head(errs *resource.Errors, h policyHead) {
	if h.failure == nil {
		errs.Required("failurePolicy", "")
	} else {
		check.OneOf(errs, "failurePolicy", *h.failure, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
	}
	if h.params != nil {
		validateParamKind(errs.At("paramKind"), h.params)
	}
	if h.match == nil {
		errs.Required("matchConstraints", "")
	} else {
		validateMatch(errs.At("matchConstraints"), h.match)
		if len(h.match.ResourceRules) == 0 {
			errs.Required("matchConstraints.resourceRules", "")
		}
	}
	if !r.sameConditions {
		validateConditions(errs, "matchConditions", h.conditions, conditionRules{params: r.params, stored: r.scope.Known})
	}
	for i := range h.variables {
		r.variable(errs.At("variables[%d]", i), &h.variables[i])
	}
}

func (r *policyRules) variable(errs *resource.Errors, v *admissionregistrationv1.Variable) {
	if strings.TrimSpace(v.Name) == "" {
		errs.Required("name", "name is not specified")
	} else if !isIdentifier(v.Name) {
		errs.Invalid("name", v.Name, "must be a valid CEL identifier")
	}
	if strings.TrimSpace(v.Expression) == "" {
		errs.Required("expression", "expression is not specified")
		return
	}
	refuseExpression(errs, "expression", v.Expression, r.scope.Declare(v.Name, v.Expression))
}

var (
	identifier = regexp.MustCompile("^[_a-zA-Z][_a-zA-Z0-9]*$")
	reserved   = []string{
		"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
		"loop", "package", "namespace", "return", "var", "void", "while",
	}
)

// isIdentifier reports whether a name can be written in an expression.
func isIdentifier(name string) bool {
	return identifier.MatchString(name) && !slices.Contains(reserved, name)
}

func validateParamKind(errs *resource.Errors, k *admissionregistrationv1.ParamKind) {
	switch parts := strings.Split(k.APIVersion, "/"); {
	case k.APIVersion == "":
		errs.Required("apiVersion", "")
	case len(parts) > 2:
		errs.Invalid("apiVersion", k.APIVersion, "unexpected GroupVersion string: "+k.APIVersion)
	default:
		version := parts[len(parts)-1]
		if group := strings.TrimSuffix(k.APIVersion[:len(k.APIVersion)-len(version)], "/"); group != "" {
			refuseTogether(errs, "apiVersion", group, utilvalidation.IsDNS1123Subdomain(group))
		}
		if version == "" {
			errs.Invalid("apiVersion", k.APIVersion, "version must be specified")
		} else {
			refuseTogether(errs, "apiVersion", version, utilvalidation.IsDNS1035Label(version))
		}
	}
	if k.Kind == "" {
		errs.Required("kind", "")
	} else {
		wrong := utilvalidation.IsDNS1035Label(strings.ToLower(k.Kind))
		for i := range wrong[:min(1, len(wrong))] {
			wrong[i] = "may have mixed case, but should otherwise match: " + wrong[i]
		}
		refuseTogether(errs, "kind", k.Kind, wrong)
	}
}

// refuseTogether says in one error all that is wrong with a value.
func refuseTogether(errs *resource.Errors, at, value string, wrong []string) {
	if len(wrong) > 0 {
		errs.Invalid(at, value, strings.Join(wrong, ","))
	}
}

func validateMatch(errs *resource.Errors, m *admissionregistrationv1.MatchResources) {
	if m.MatchPolicy == nil {
		errs.Required("matchPolicy", "")
	} else {
		check.OneOf(errs, "matchPolicy", *m.MatchPolicy, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)
	}
	validateSelector(errs, "namespaceSelector", m.NamespaceSelector)
	validateSelector(errs, "objectSelector", m.ObjectSelector)
	for i := range m.ResourceRules {
		validateNamedRule(errs.At("resourceRules[%d]", i), &m.ResourceRules[i])
	}
	for i := range m.ExcludeResourceRules {
		validateNamedRule(errs.At("excludeResourceRules[%d]", i), &m.ExcludeResourceRules[i])
	}
}

func validateSelector(errs *resource.Errors, at string, s *metav1.LabelSelector) {
	if s == nil {
		errs.Required(at, "")
		return
	}
	errs.Add(metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, errs.Path(at))...)
}

func validateNamedRule(errs *resource.Errors, r *admissionregistrationv1.NamedRuleWithOperations) {
	for i, name := range r.ResourceNames {
		at := errs.At("resourceNames[%d]", i)
		at.Refuse("", name, path.ValidatePathSegmentName(name, false))
		if slices.Contains(r.ResourceNames[:i], name) {
			at.Duplicate("", name)
		}
	}
	ValidateRule(errs, &r.RuleWithOperations)
}

func sameParamKind(a, b *admissionregistrationv1.ParamKind) bool { return ptr.Equal(a, b) }

func sameConditions(a, b []admissionregistrationv1.MatchCondition) bool { return slices.Equal(a, b) }

// bindingHead is what bindings of both kinds say.
type bindingHead struct {
	policy string
	params *admissionregistrationv1.ParamRef
	match  *admissionregistrationv1.MatchResources
}

func (h bindingHead) validate(errs *resource.Errors) {
	if h.policy == "" {
		errs.Required("policyName", "")
	} else {
		check.DNSSubdomain(errs, "policyName", h.policy)
	}
	if h.params != nil {
		validateParamRef(errs.At("paramRef"), h.params)
	}
	if h.match != nil {
		validateMatch(errs.At("matchResources"), h.match)
	}
}

func validateParamRef(errs *resource.Errors, r *admissionregistrationv1.ParamRef) {
	if r.Name != "" {
		errs.Refuse("name", r.Name, path.ValidatePathSegmentName(r.Name, false))
		if r.Selector != nil {
			errs.Forbidden("name", "name and selector are mutually exclusive")
		}
	}
	if r.Selector != nil {
		errs.Add(metavalidation.ValidateLabelSelector(r.Selector, metavalidation.LabelSelectorValidationOptions{}, errs.Path("selector"))...)
		if r.Name != "" {
			errs.Forbidden("selector", "name and selector are mutually exclusive")
		}
	}
	if r.Name == "" && r.Selector == nil {
		errs.Required("", "one of name or selector must be specified")
	}
	if action := ptr.Deref(r.ParameterNotFoundAction, ""); action == "" {
		errs.Required("parameterNotFoundAction", "")
	} else {
		check.OneOf(errs, "parameterNotFoundAction", action, admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction)
	}
}

// shownParams is a reference to params in a table.
func shownParams(r *admissionregistrationv1.ParamRef) string {
	switch {
	case r == nil, r.Name == "" && r.Selector == nil:
		return "<unset>"
	case r.Name == "":
		return r.Selector.String()
	case r.Namespace != "":
		return fmt.Sprintf("%s/%s", r.Namespace, r.Name)
	}
	return "*/" + r.Name // in which namespace depends on what is written
}
