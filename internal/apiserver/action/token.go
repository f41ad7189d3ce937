package action

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// requestToken issues a token of a service account (serviceaccounts/token). Admission is asked first:
// it knows of namespaces that are not there, and keeps node agents to the pods of their nodes.
func (a *Actions) requestToken(ctx context.Context, q *Request) (runtime.Object, error) {
	req, err := bodyOf[*authenticationv1.TokenRequest](q)
	if err != nil {
		return nil, err
	}
	if req.Spec.ExpirationSeconds == nil {
		req.Spec.ExpirationSeconds = ptr.To[int64](60 * 60)
	}
	if err := q.API.Admit(ctx, req); err != nil {
		return nil, err
	}
	if err := fitToken(req, q); err != nil {
		return nil, err
	}
	obj, err := q.API.Get(ctx)
	if err != nil {
		return nil, err
	}
	sa := obj.(*corev1.ServiceAccount)
	if req.UID != "" && req.UID != sa.UID {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: authenticationv1.GroupName, Resource: "TokenRequest"}, sa.Name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", req.UID, sa.UID))
	}
	if a.Tokens == nil {
		return nil, apierrors.NewGenericServerResponse(404, "create", q.Def.GroupResource(), q.Name, "this server issues no tokens", 0, true)
	}
	errs := resource.NewErrors()
	validateTokenRequest(req, errs)
	if errs.Len() > 0 {
		return nil, invalidToken("", errs)
	}
	bound := authn.Bound{ServiceAccount: sa}
	if ref := req.Spec.BoundObjectRef; ref != nil {
		if err := a.bindToken(&bound, ref); err != nil {
			return nil, err
		}
	}
	if asked := *req.Spec.ExpirationSeconds; asked > a.Tokens.MaxSeconds() {
		warning.AddWarning(ctx, "", fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", asked, a.Tokens.MaxSeconds()))
	}
	answer, err := a.Tokens.Issue(ctx, req, bound)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("issue token: %w", err))
	}
	answer.Name, answer.Namespace, answer.UID, answer.CreationTimestamp = sa.Name, sa.Namespace, sa.UID, metav1.Now().Rfc3339Copy()
	return answer, nil
}

// fitToken refuses a request that is for another account than the call's.
func fitToken(req *authenticationv1.TokenRequest, q *Request) error {
	if req.Name == "" || req.Name == q.Name {
		return nil
	}
	errs := resource.NewErrors()
	errs.Invalid("metadata.name", req.Name, "must match the service account name if specified")
	return invalidToken(q.Name, errs)
}

func invalidToken(name string, errs *resource.Errors) error {
	return apierrors.NewInvalid(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest").GroupKind(), name, errs.List())
}

func validateTokenRequest(req *authenticationv1.TokenRequest, errs *resource.Errors) {
	switch seconds := *req.Spec.ExpirationSeconds; {
	case seconds < 10*60:
		errs.Invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
	case seconds > 1<<32:
		errs.Invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
	}
}

// bindToken finds the object that a token is to be bound to: it must exist, and
// a pod must run as the service account.
func (a *Actions) bindToken(b *authn.Bound, ref *authenticationv1.BoundObjectReference) error {
	sa, kind := b.ServiceAccount, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	def := boundKind(kind)
	if def == nil {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", kind))
	}
	key := ref.Name
	if def.Namespaced {
		key = cache.Key(sa.Namespace, ref.Name)
	}
	it := a.Cache(def).Get(key)
	if it == nil {
		return apierrors.NewNotFound(def.GroupResource(), ref.Name)
	}
	switch obj := it.Object.(type) {
	case *corev1.Pod:
		if obj.Spec.ServiceAccountName != sa.Name {
			return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", sa.Name))
		}
		b.Pod = obj
		if name := obj.Spec.NodeName; name != "" {
			b.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} // told of without a UID if it is not there
			if node := a.Cache(core.Nodes.Def).Get(name); node != nil {
				b.Node = node.Object.(*corev1.Node)
			}
		}
	case *corev1.Secret:
		b.Secret = obj
	case *corev1.Node:
		b.Node = obj
	}
	if ref.UID != "" && it.Object.GetUID() != ref.UID {
		return apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	return nil
}

// boundKind is the resource of a kind that tokens can be bound to; nil: they cannot.
func boundKind(kind schema.GroupVersionKind) *resource.Def {
	switch kind.GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		return core.Pods.Def
	case schema.GroupKind{Kind: "Secret"}:
		return core.Secrets.Def
	case schema.GroupKind{Kind: "Node"}:
		return core.Nodes.Def
	}
	return nil
}
