package auth

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authorizers asks each in turn until one allows or denies. Members of the
// group system:masters may do everything, whatever the authorizers know or
// have lost.
func Authorizers(list ...authorizer.UnconditionalAuthorizer) Chain { return list }

// Chain is authorizers in the order in which they are asked.
type Chain []authorizer.UnconditionalAuthorizer

var (
	_ authorizer.Authorizer   = Chain(nil)
	_ authorizer.RuleResolver = Chain(nil)
)

// Authorize decides about one request.
func (c Chain) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if u := a.GetUser(); u != nil && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	var errs []error
	var reasons []string
	for _, one := range c {
		decision, reason, err := one.Authorize(ctx, a)
		if decision != authorizer.DecisionNoOpinion {
			return decision, reason, err
		}
		if err != nil {
			errs = append(errs, err)
		}
		if reason != "" {
			reasons = append(reasons, reason)
		}
	}
	return authorizer.DecisionNoOpinion, strings.Join(reasons, "\n"), errors.Join(errs...)
}

// ConditionsAwareAuthorize decides without conditions: no authorizer here has any.
func (c Chain) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(c.Authorize(ctx, a))
}

// EvaluateConditions denies: no authorizer here has made any.
func (c Chain) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// withinKey is the key of the user whose request comes from within the process.
type withinKey struct{}

// Within marks a request as one of a part of this process, of the given user. It must be the very
// value that the request's attributes have: what such a part asks about somebody else is not its own.
func Within(ctx context.Context, u user.Info) context.Context {
	return context.WithValue(ctx, withinKey{}, u)
}

// IsWithin reports whether a request of a user comes from within the process.
func IsWithin(ctx context.Context, u user.Info) bool {
	return u != nil && ctx.Value(withinKey{}) == any(u)
}

// everything is what system:masters may do.
var (
	everyResource    = authorizer.DefaultResourceRuleInfo{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}
	everyNonResource = authorizer.DefaultNonResourceRuleInfo{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}
)

// RulesFor lists what the user may do in a namespace. incomplete says that
// some authorizer cannot tell. Members of system:masters have what the roles
// say, too, as everyone else: everything stands before it where no role says so.
func (c Chain) RulesFor(ctx context.Context, u user.Info, namespace string) (res []authorizer.ResourceRuleInfo, non []authorizer.NonResourceRuleInfo, incomplete bool, err error) {
	var errs []error
	for _, one := range c {
		r, ok := one.(authorizer.RuleResolver)
		if !ok {
			incomplete = true
			continue
		}
		someRes, someNon, partly, err := r.RulesFor(ctx, u, namespace)
		res, non, incomplete = append(res, someRes...), append(non, someNon...), incomplete || partly
		if err != nil {
			errs = append(errs, err)
		}
	}
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		if !slices.ContainsFunc(res, isEveryResource) {
			res = slices.Insert(res, 0, authorizer.ResourceRuleInfo(&everyResource))
		}
		if !slices.ContainsFunc(non, isEveryNonResource) {
			non = slices.Insert(non, 0, authorizer.NonResourceRuleInfo(&everyNonResource))
		}
		incomplete = false
	}
	return res, non, incomplete, errors.Join(errs...)
}

func isEveryResource(r authorizer.ResourceRuleInfo) bool {
	return slices.Contains(r.GetVerbs(), "*") && slices.Contains(r.GetAPIGroups(), "*") && slices.Contains(r.GetResources(), "*") && len(r.GetResourceNames()) == 0
}

func isEveryNonResource(r authorizer.NonResourceRuleInfo) bool {
	return slices.Contains(r.GetVerbs(), "*") && slices.Contains(r.GetNonResourceURLs(), "*")
}
