package objects

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
)

// RequestToken asks the API for a token of the pod's service account that is bound to the pod. An empty audience is
// the API's own, nil seconds leave it to the API how long it is good.
func (o *Objects) RequestToken(ctx context.Context, pod *v1.Pod, audience string, seconds *int64) (*authenticationv1.TokenRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if audience != "" {
		r.Spec.Audiences = []string{audience}
	}
	answer, err := client.For(o.t, core.ServiceAccounts).Post(ctx, pod.Namespace, pod.Spec.ServiceAccountName, "token", r)
	if err != nil {
		return nil, err
	}
	got, ok := answer.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, errors.New("the API did not answer with a token")
	}
	return got, nil
}

// Account returns the pod's service account.
func (o *Objects) Account(ctx context.Context, pod *v1.Pod) (*v1.ServiceAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return client.For(o.t, core.ServiceAccounts).Get(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
}
