package flowcontrol

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kemudi/kemudi/internal/resource"
)

// verbs are all that a rule may name, in the order that messages list them.
var verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

func validateFlowSchema(fs, _ *flowcontrolv1.FlowSchema, errs *resource.Errors) {
	s := &fs.Spec
	if s.MatchingPrecedence <= 0 {
		errs.Invalid("spec.matchingPrecedence", s.MatchingPrecedence, "must be a positive value")
	}
	if s.MatchingPrecedence > flowcontrolv1.FlowSchemaMaxMatchingPrecedence {
		errs.Invalid("spec.matchingPrecedence", s.MatchingPrecedence, fmt.Sprintf("must not be greater than %v", flowcontrolv1.FlowSchemaMaxMatchingPrecedence))
	}
	if s.MatchingPrecedence == 1 && fs.Name != flowcontrolv1.FlowSchemaNameExempt {
		errs.Invalid("spec.matchingPrecedence", s.MatchingPrecedence, "only the schema named 'exempt' may have matchingPrecedence 1")
	}
	if m := s.DistinguisherMethod; m != nil && m.Type != flowcontrolv1.FlowDistinguisherMethodByUserType && m.Type != flowcontrolv1.FlowDistinguisherMethodByNamespaceType {
		errs.Add(field.NotSupported(errs.Path("spec.distinguisherMethod.type"), m, []flowcontrolv1.FlowDistinguisherMethodType{
			flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType,
		}))
	}
	if name := s.PriorityLevelConfiguration.Name; name == "" {
		errs.Required("spec.priorityLevelConfiguration.name", "must reference a priority level")
	} else {
		errs.Refuse("spec.priorityLevelConfiguration.name", name, resource.DNS1123Subdomain(name, false))
	}
	for i := range s.Rules {
		validateRule(&s.Rules[i], errs.At("spec.rules[%d]", i))
	}
	if fixed := mandatorySchema(fs.Name); fixed != nil && !equality.Semantic.DeepEqual(fs.Spec, fixed.Spec) {
		errs.Invalid("spec", fs.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", fs.Name))
	}
	validateFlowSchemaStatus(fs, errs)
}

func validateRule(r *flowcontrolv1.PolicyRulesWithSubjects, errs *resource.Errors) {
	if len(r.Subjects) == 0 {
		errs.Required("subjects", "subjects must contain at least one value")
	}
	for i := range r.Subjects {
		validateSubject(&r.Subjects[i], errs.At("subjects[%d]", i))
	}
	if len(r.ResourceRules) == 0 && len(r.NonResourceRules) == 0 {
		errs.Required("", "at least one of resourceRules and nonResourceRules has to be non-empty")
	}
	for i := range r.ResourceRules {
		validateResourceRule(&r.ResourceRules[i], errs.At("resourceRules[%d]", i))
	}
	for i := range r.NonResourceRules {
		n, at := &r.NonResourceRules[i], errs.At("nonResourceRules[%d]", i)
		validateVerbs(n.Verbs, at)
		switch {
		case len(n.NonResourceURLs) == 0:
			at.Required("nonResourceURLs", "nonResourceURLs must contain at least one value")
		case slices.Contains(n.NonResourceURLs, flowcontrolv1.NonResourceAll):
			if len(n.NonResourceURLs) > 1 {
				at.Invalid("nonResourceURLs", n.NonResourceURLs, "if '*' is present, must not specify other non-resource URLs")
			}
		default:
			for j, path := range n.NonResourceURLs {
				if wrong := wrongPath(path); wrong != "" {
					at.At("nonResourceURLs[%d]", j).Invalid("", path, wrong)
				}
			}
		}
	}
}

func validateSubject(s *flowcontrolv1.Subject, errs *resource.Errors) {
	only := func(kind flowcontrolv1.SubjectKind) {
		if s.ServiceAccount != nil && kind != flowcontrolv1.SubjectKindServiceAccount {
			errs.Forbidden("serviceAccount", "serviceAccount is forbidden when subject kind is not 'ServiceAccount'")
		}
		if s.User != nil && kind != flowcontrolv1.SubjectKindUser {
			errs.Forbidden("user", "user is forbidden when subject kind is not 'User'")
		}
		if s.Group != nil && kind != flowcontrolv1.SubjectKindGroup {
			errs.Forbidden("group", "group is forbidden when subject kind is not 'Group'")
		}
	}
	switch s.Kind {
	case flowcontrolv1.SubjectKindServiceAccount:
		validateAccount(s.ServiceAccount, errs)
		only(s.Kind)
	case flowcontrolv1.SubjectKindUser:
		if s.User == nil {
			errs.Required("user", "user is required when subject kind is 'User'")
		} else if s.User.Name == "" {
			errs.Required("user.name", "")
		}
		only(s.Kind)
	case flowcontrolv1.SubjectKindGroup:
		if s.Group == nil {
			errs.Required("group", "group is required when subject kind is 'Group'")
		} else if s.Group.Name == "" {
			errs.Required("group.name", "")
		}
		only(s.Kind)
	default:
		resource.NotSupported(errs, "kind", s.Kind, flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser)
	}
}

func validateAccount(a *flowcontrolv1.ServiceAccountSubject, errs *resource.Errors) {
	if a == nil {
		errs.Required("serviceAccount", "serviceAccount is required when subject kind is 'ServiceAccount'")
		return
	}
	switch a.Name {
	case "":
		errs.Required("serviceAccount.name", "")
	case flowcontrolv1.NameAll:
	default:
		errs.Refuse("serviceAccount.name", a.Name, validation.ValidateServiceAccountName(a.Name, false))
	}
	if a.Namespace == "" {
		errs.Required("serviceAccount.namespace", "must specify namespace for service account")
		return
	}
	errs.Refuse("serviceAccount.namespace", a.Namespace, validation.ValidateNamespaceName(a.Namespace, false))
}

func validateResourceRule(r *flowcontrolv1.ResourcePolicyRule, errs *resource.Errors) {
	validateVerbs(r.Verbs, errs)
	if len(r.APIGroups) == 0 {
		errs.Required("apiGroups", "resource rules must supply at least one api group")
	} else if len(r.APIGroups) > 1 && slices.Contains(r.APIGroups, flowcontrolv1.APIGroupAll) {
		errs.Invalid("apiGroups", r.APIGroups, "if '*' is present, must not specify other api groups")
	}
	if len(r.Resources) == 0 {
		errs.Required("resources", "resource rules must supply at least one resource")
	} else if len(r.Resources) > 1 && slices.Contains(r.Resources, flowcontrolv1.ResourceAll) {
		errs.Invalid("resources", r.Resources, "if '*' is present, must not specify other resources")
	}
	switch {
	case len(r.Namespaces) == 0 && !r.ClusterScope:
		errs.Required("namespaces", "resource rules that are not cluster scoped must supply at least one namespace")
	case slices.Contains(r.Namespaces, flowcontrolv1.NamespaceEvery):
		if len(r.Namespaces) > 1 {
			errs.Invalid("namespaces", r.Namespaces, "if '*' is present, must not specify other namespaces")
		}
	default:
		for i, name := range r.Namespaces {
			for _, m := range validation.ValidateNamespaceName(name, false) {
				errs.At("namespaces[%d]", i).Invalid("", name, "each member of this list must be '*' or a DNS-1123 label; "+m)
			}
		}
	}
}

func validateVerbs(given []string, errs *resource.Errors) {
	switch {
	case len(given) == 0:
		errs.Required("verbs", "verbs must contain at least one value")
	case slices.Contains(given, flowcontrolv1.VerbAll):
		if len(given) > 1 {
			errs.Invalid("verbs", given, "if '*' is present, must not specify other verbs")
		}
	case slices.ContainsFunc(given, func(v string) bool { return !slices.Contains(verbs, v) }):
		errs.Add(field.NotSupported(errs.Path("verbs"), given, verbs))
	}
}

// wrongPath is what is wrong with the path of a URL; nothing if it is good.
func wrongPath(path string) string {
	switch stars := strings.Count(path, "*"); {
	case path == "":
		return "must not be empty"
	case path == "/":
		return ""
	case !strings.HasPrefix(path, "/"):
		return "must start with slash"
	case strings.Contains(path, " "):
		return "must not contain white-space"
	case strings.Contains(path, "//"):
		return "must not contain double slash"
	case stars > 1 || stars == 1 && !strings.HasSuffix(path, "/*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}

func validateFlowSchemaStatus(fs *flowcontrolv1.FlowSchema, errs *resource.Errors) {
	types := make([]string, len(fs.Status.Conditions))
	for i, c := range fs.Status.Conditions {
		types[i] = string(c.Type)
	}
	validateConditionTypes(types, errs)
}

// validateConditionTypes wants one condition of a type, and each to have one.
func validateConditionTypes(types []string, errs *resource.Errors) {
	for i, t := range types {
		at := errs.At("status.conditions[%d]", i)
		if slices.Contains(types[:i], t) {
			at.Duplicate("type", t)
		}
		if t == "" {
			at.Required("type", "must not be empty")
		}
	}
}
