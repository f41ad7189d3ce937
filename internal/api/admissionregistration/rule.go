package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// Unasked are the questions who somebody is and what he may do. Neither webhooks nor policies are asked
// about them: a wrong answer would lock everybody out.
var Unasked = []schema.GroupResource{
	{Group: authenticationv1.GroupName, Resource: "selfsubjectreviews"},
	{Group: authenticationv1.GroupName, Resource: "tokenreviews"},
	{Group: authorizationv1.GroupName, Resource: "localsubjectaccessreviews"},
	{Group: authorizationv1.GroupName, Resource: "selfsubjectaccessreviews"},
	{Group: authorizationv1.GroupName, Resource: "selfsubjectrulesreviews"},
	{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews"},
}

// warnOfUnasked tells of rules of webhooks that name such questions. One with a star means others, too.
func warnOfUnasked(webhooks []admissionregistrationv1.MutatingWebhook) (out []string) {
	for i := range webhooks {
		for j := range webhooks[i].Rules {
			for _, named := range unaskedBy(&webhooks[i].Rules[j]) {
				out = append(out, fmt.Sprintf("webhooks[%d].rules[%d]: %s is excluded from admission webhooks; this rule will have no effect", i, j, named))
			}
		}
	}
	return out
}

// unaskedBy are those that a rule names, each once.
func unaskedBy(r *admissionregistrationv1.RuleWithOperations) (named []schema.GroupResource) {
	if slices.Contains(r.APIGroups, "*") || slices.Contains(r.Resources, "*") {
		return nil
	}
	for _, group := range r.APIGroups {
		for _, plural := range r.Resources {
			if gr := (schema.GroupResource{Group: group, Resource: plural}); slices.Contains(Unasked, gr) && !slices.Contains(named, gr) {
				named = append(named, gr)
			}
		}
	}
	return named
}

// ValidateRule refuses a rule that says which writes are meant, of a webhook or a policy, if it
// cannot be.
func ValidateRule(errs *resource.Errors, r *admissionregistrationv1.RuleWithOperations) {
	if len(r.Operations) == 0 {
		errs.Required("operations", "")
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionregistrationv1.OperationAll) {
		errs.Invalid("operations", r.Operations, "if '*' is present, must not specify other operations")
	}
	for i, op := range r.Operations {
		check.OneOf(errs.At("operations[%d]", i), "", op, admissionregistrationv1.OperationAll, admissionregistrationv1.Connect,
			admissionregistrationv1.Create, admissionregistrationv1.Delete, admissionregistrationv1.Update)
	}
	if len(r.APIGroups) == 0 {
		errs.Required("apiGroups", "")
	}
	if len(r.APIGroups) > 1 && slices.Contains(r.APIGroups, "*") {
		errs.Invalid("apiGroups", r.APIGroups, "if '*' is present, must not specify other API groups")
	}
	if len(r.APIVersions) == 0 {
		errs.Required("apiVersions", "")
	}
	if len(r.APIVersions) > 1 && slices.Contains(r.APIVersions, "*") {
		errs.Invalid("apiVersions", r.APIVersions, "if '*' is present, must not specify other API versions")
	}
	for i, v := range r.APIVersions {
		if v == "" {
			errs.At("apiVersions[%d]", i).Required("", "")
		}
	}
	validateResources(errs, r.Resources)
	if r.Scope != nil {
		check.OneOf(errs, "scope", *r.Scope, admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope)
	}
}

// validateResources refuses resources that name again what a wildcard among them names.
func validateResources(errs *resource.Errors, resources []string) {
	if len(resources) == 0 {
		errs.Required("resources", "")
	}
	allSubsOf, ofAll := map[string]bool{}, map[string]bool{} // x/* and */x
	star, plain := false, false
	for i, name := range resources {
		at := errs.At("resources[%d]", i)
		if name == "" {
			at.Required("", "")
			continue
		}
		star = star || name == "*"
		res, sub, isSub := strings.Cut(name, "/")
		if !isSub {
			plain = name != "*"
			continue
		}
		if allSubsOf[res] {
			at.Invalid("", name, fmt.Sprintf("if '%s/*' is present, must not specify %s", res, name))
		}
		if ofAll[sub] {
			at.Invalid("", name, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, name))
		}
		allSubsOf[res], ofAll[sub] = allSubsOf[res] || sub == "*", ofAll[sub] || res == "*"
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs.Invalid("resources", resources, "if '*/*' is present, must not specify other resources")
	}
	if star && plain {
		errs.Invalid("resources", resources, "if '*' is present, must not specify other resources without subresources")
	}
}
