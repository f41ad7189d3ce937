package apiserver

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/resource"
)

// question makes a question ready to be answered: in the storage version,
// without what clients may not say, and valid.
func question[T resource.Object](c *call, body runtime.Object) (T, error) {
	var none T
	obj, ok := body.(resource.Object)
	if !ok {
		return none, apierrors.NewInternalError(fmt.Errorf("review: got a %T", body))
	}
	d := c.res.def
	if v := c.res.ver; v != nil {
		v.Default(obj)
		var err error
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

// tokenReview says whose token it is (tokenreviews).
func tokenReview(ctx context.Context, s *Server, c *call, body runtime.Object) (runtime.Object, error) {
	q, err := question[*authenticationv1.TokenReview](c, body)
	if err != nil {
		return nil, err
	}
	if q.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	tokens, ok := s.o.Authenticator.(authenticator.Token)
	if !ok {
		q.Status.Error = "this server knows no tokens"
		return q, nil
	}
	if len(q.Spec.Audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, q.Spec.Audiences)
	}
	answer, ok, err := tokens.AuthenticateToken(ctx, q.Spec.Token)
	switch {
	case err != nil:
		q.Status.Error = fmt.Sprintf("[invalid bearer token, %v]", err)
		return q, nil
	case !ok:
		q.Status.Error = "invalid bearer token"
		return q, nil
	}
	q.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: userInfo(answer.User), Audiences: answer.Audiences}
	return q, nil
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
func selfSubjectReview(_ context.Context, _ *Server, c *call, body runtime.Object) (runtime.Object, error) {
	q, err := question[*authenticationv1.SelfSubjectReview](c, body)
	if err != nil {
		return nil, err
	}
	q.Status.UserInfo = userInfo(c.user)
	return q, nil
}

// subjectAccessReview says whether somebody may do something.
func subjectAccessReview(ctx context.Context, s *Server, c *call, body runtime.Object) (runtime.Object, error) {
	q, err := question[*authorizationv1.SubjectAccessReview](c, body)
	if err != nil {
		return nil, err
	}
	q.Status = s.review(ctx, subject(&q.Spec), access{q.Spec.ResourceAttributes, q.Spec.NonResourceAttributes})
	return q, nil
}

// localSubjectAccessReview is the same within one namespace.
func localSubjectAccessReview(ctx context.Context, s *Server, c *call, body runtime.Object) (runtime.Object, error) {
	q, err := question[*authorizationv1.LocalSubjectAccessReview](c, body)
	if err != nil {
		return nil, err
	}
	if r := q.Spec.ResourceAttributes; r == nil || r.Namespace != c.namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.resourceAttributes.namespace must match namespace: %s", c.namespace))
	}
	q.Status = s.review(ctx, subject(&q.Spec), access{q.Spec.ResourceAttributes, nil})
	return q, nil
}

// selfSubjectAccessReview says whether the caller may do something.
func selfSubjectAccessReview(ctx context.Context, s *Server, c *call, body runtime.Object) (runtime.Object, error) {
	q, err := question[*authorizationv1.SelfSubjectAccessReview](c, body)
	if err != nil {
		return nil, err
	}
	q.Status = s.review(ctx, c.user, access{q.Spec.ResourceAttributes, q.Spec.NonResourceAttributes})
	return q, nil
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

func (s *Server) review(ctx context.Context, u user.Info, a access) authorizationv1.SubjectAccessReviewStatus {
	if s.o.Authorizer == nil {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "everybody may do everything on this server"}
	}
	attrs := &authorizer.AttributesRecord{User: u}
	if r := a.resource; r != nil {
		attrs.ResourceRequest = true
		attrs.Verb, attrs.Namespace, attrs.Name = r.Verb, r.Namespace, r.Name
		attrs.APIGroup, attrs.APIVersion, attrs.Resource, attrs.Subresource = r.Group, r.Version, r.Resource, r.Subresource
	} else if a.path != nil {
		attrs.Verb, attrs.Path = a.path.Verb, a.path.Path
	}
	decision, reason, err := s.o.Authorizer.Authorize(ctx, attrs)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
	}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

// selfSubjectRulesReview lists what the caller may do in a namespace.
func selfSubjectRulesReview(ctx context.Context, s *Server, c *call, body runtime.Object) (runtime.Object, error) {
	q, err := question[*authorizationv1.SelfSubjectRulesReview](c, body)
	if err != nil {
		return nil, err
	}
	if q.Spec.Namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	resolver, ok := s.o.Authorizer.(authorizer.RuleResolver)
	if !ok {
		q.Status.Incomplete = true
		return q, nil
	}
	rules, paths, incomplete, err := resolver.RulesFor(ctx, c.user, q.Spec.Namespace)
	q.Status = authorizationv1.SubjectRulesReviewStatus{Incomplete: incomplete, ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}}
	if err != nil {
		q.Status.EvaluationError = err.Error()
	}
	for _, r := range rules {
		q.Status.ResourceRules = append(q.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames(),
		})
	}
	for _, r := range paths {
		q.Status.NonResourceRules = append(q.Status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: r.GetVerbs(), NonResourceURLs: r.GetNonResourceURLs()})
	}
	return q, nil
}
