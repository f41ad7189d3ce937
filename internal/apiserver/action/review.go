package action

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/resource"
)

// question makes a question ready to be answered: in the storage version,
// without what clients may not say, and valid.
func question[T resource.Object](q *Request) (T, error) {
	var none T
	obj, err := bodyOf[resource.Object](q)
	if err != nil {
		return none, err
	}
	d := q.Def
	if v := q.Version; v != nil {
		v.Default(obj)
		if obj, err = v.To(obj); err != nil {
			return none, apierrors.NewBadRequest(err.Error())
		}
	}
	d.Default(obj)
	d.Prepare(obj, nil)
	errs := resource.NewErrors()
	d.Validate(obj, nil, errs)
	if errs.Len() > 0 {
		return none, apierrors.NewInvalid(d.GVK().GroupKind(), "", errs.List())
	}
	return obj.(T), nil
}

var errToken = errors.New("invalid bearer token")

// tokenReview says whose token it is (tokenreviews).
func (a *Actions) tokenReview(ctx context.Context, q *Request) (runtime.Object, error) {
	v, err := question[*authenticationv1.TokenReview](q)
	if err != nil {
		return nil, err
	}
	if v.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	tokens, ok := a.Authenticator.(authenticator.Token)
	if !ok {
		v.Status.Error = "this server knows no tokens"
		return v, nil
	}
	if len(v.Spec.Audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, v.Spec.Audiences)
	}
	answer, ok, err := tokens.AuthenticateToken(ctx, v.Spec.Token)
	switch {
	case err != nil:
		v.Status.Error = utilerrors.NewAggregate([]error{errToken, err}).Error()
		return v, nil
	case !ok:
		v.Status.Error = errToken.Error()
		return v, nil
	}
	v.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: userInfo(answer.User), Audiences: answer.Audiences}
	return v, nil
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for k, v := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[k] = v
	}
	return info
}

// selfSubjectReview says who asks (selfsubjectreviews).
func (a *Actions) selfSubjectReview(_ context.Context, q *Request) (runtime.Object, error) {
	v, err := question[*authenticationv1.SelfSubjectReview](q)
	if err != nil {
		return nil, err
	}
	v.Status.UserInfo = userInfo(q.User)
	return v, nil
}

// subjectAccessReview says whether somebody may do something.
func (a *Actions) subjectAccessReview(ctx context.Context, q *Request) (runtime.Object, error) {
	v, err := question[*authorizationv1.SubjectAccessReview](q)
	if err != nil {
		return nil, err
	}
	v.Status = a.review(ctx, subject(&v.Spec), access{v.Spec.ResourceAttributes, v.Spec.NonResourceAttributes})
	return v, nil
}

// localSubjectAccessReview is the same within one namespace.
func (a *Actions) localSubjectAccessReview(ctx context.Context, q *Request) (runtime.Object, error) {
	v, err := question[*authorizationv1.LocalSubjectAccessReview](q)
	if err != nil {
		return nil, err
	}
	if r := v.Spec.ResourceAttributes; r == nil || r.Namespace != q.Namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.resourceAttributes.namespace must match namespace: %s", q.Namespace))
	}
	v.Status = a.review(ctx, subject(&v.Spec), access{v.Spec.ResourceAttributes, nil})
	return v, nil
}

// selfSubjectAccessReview says whether the caller may do something.
func (a *Actions) selfSubjectAccessReview(ctx context.Context, q *Request) (runtime.Object, error) {
	v, err := question[*authorizationv1.SelfSubjectAccessReview](q)
	if err != nil {
		return nil, err
	}
	v.Status = a.review(ctx, q.User, access{v.Spec.ResourceAttributes, v.Spec.NonResourceAttributes})
	return v, nil
}

func subject(spec *authorizationv1.SubjectAccessReviewSpec) user.Info {
	u := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	for k, v := range spec.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[k] = v
	}
	return u
}

// access is what is asked for: one of the two.
type access struct {
	resource *authorizationv1.ResourceAttributes
	path     *authorizationv1.NonResourceAttributes
}

func (a *Actions) review(ctx context.Context, u user.Info, what access) authorizationv1.SubjectAccessReviewStatus {
	if a.Authorizer == nil {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "everybody may do everything on this server"}
	}
	attrs := &authorizer.AttributesRecord{User: u}
	if r := what.resource; r != nil {
		attrs.ResourceRequest = true
		attrs.Verb, attrs.Namespace, attrs.Name = r.Verb, r.Namespace, r.Name
		attrs.APIGroup, attrs.APIVersion, attrs.Resource, attrs.Subresource = r.Group, r.Version, r.Resource, r.Subresource
		narrow(attrs, r)
	} else if what.path != nil {
		attrs.Verb, attrs.Path = what.path.Verb, what.path.Path
	}
	decision, reason, err := a.Authorizer.Authorize(ctx, attrs)
	return authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
		EvaluationError: evaluationError(err, attrs),
	}
}

// selfSubjectRulesReview lists what the caller may do in a namespace.
func (a *Actions) selfSubjectRulesReview(ctx context.Context, q *Request) (runtime.Object, error) {
	v, err := question[*authorizationv1.SelfSubjectRulesReview](q)
	if err != nil {
		return nil, err
	}
	if v.Spec.Namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	resolver, ok := a.Authorizer.(authorizer.RuleResolver)
	if !ok {
		v.Status.Incomplete = true
		return v, nil
	}
	rules, paths, incomplete, err := resolver.RulesFor(ctx, q.User, v.Spec.Namespace)
	v.Status = authorizationv1.SubjectRulesReviewStatus{Incomplete: incomplete, ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}}
	if err != nil {
		v.Status.EvaluationError = err.Error()
	}
	for _, r := range rules {
		v.Status.ResourceRules = append(v.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames(),
		})
	}
	for _, r := range paths {
		v.Status.NonResourceRules = append(v.Status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: r.GetVerbs(), NonResourceURLs: r.GetNonResourceURLs()})
	}
	return v, nil
}
