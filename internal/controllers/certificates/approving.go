package certificates

import (
	"context"
	"crypto/x509"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kemudi/kemudi/internal/api/authorization"
	api "github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
)

// Approving approves requests of node agents for their client certificates, if
// who asks may have one.
var Approving = controller.New(controller.Spec[*certificatesv1.CertificateSigningRequest]{
	Name: "certificatesigningrequest-approving-controller",
	For:  api.CertificateSigningRequests,
	Writes: []controller.Permission{
		{Verb: "update", Def: api.CertificateSigningRequests.Def, Sub: "approval"},
		controller.Create(authorization.SubjectAccessReviews.Def),
	},
	Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"signers"}, Verbs: []string{"approve"},
		ResourceNames: []string{certificatesv1.KubeAPIServerClientKubeletSignerName},
	}},
	Workers: 1, // there is little to do
	Setup: func(k *controller.Kit) controller.Reconciler[*certificatesv1.CertificateSigningRequest] {
		return &approver{
			requests: controller.Writer(k, api.CertificateSigningRequests),
			reviews:  controller.Writer(k, authorization.SubjectAccessReviews),
		}
	},
})

// askAgain is when a request that was not approved is looked at once more: who
// asks may have been given the right.
const askAgain = time.Minute

// cases are what is approved, the narrower one first.
var cases = []struct {
	sub     string // the right that it takes
	message string
	is      func(r *certificatesv1.CertificateSigningRequest, req *x509.CertificateRequest) bool
}{
	{
		"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.",
		func(r *certificatesv1.CertificateSigningRequest, req *x509.CertificateRequest) bool {
			return r.Spec.Username == req.Subject.CommonName
		},
	},
	{
		"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.",
		func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest) bool { return true },
	},
}

type approver struct {
	requests client.Client[*certificatesv1.CertificateSigningRequest]
	reviews  client.Client[*authorizationv1.SubjectAccessReview]
}

// Reconcile approves a request that nobody has decided about.
func (a *approver) Reconcile(ctx context.Context, r *certificatesv1.CertificateSigningRequest) (controller.Next, error) {
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || len(r.Status.Certificate) > 0 ||
		has(r, certificatesv1.CertificateApproved) || has(r, certificatesv1.CertificateDenied) {
		return controller.Done, nil
	}
	req, err := parse(r)
	if err != nil || kubeletClient(req, r.Spec.Usages) != nil {
		return controller.Done, nil // somebody else's to decide
	}
	for _, c := range cases {
		if !c.is(r, req) {
			continue
		}
		ok, err := a.may(ctx, r, c.sub)
		if err != nil {
			return controller.Done, err
		}
		if ok {
			return controller.Done, a.approve(ctx, r, c.message)
		}
	}
	return controller.After(askAgain), nil
}

// may asks whether who makes the request has a right.
func (a *approver) may(ctx context.Context, r *certificatesv1.CertificateSigningRequest, sub string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range r.Spec.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	def := api.CertificateSigningRequests.Def
	review, err := a.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: r.Spec.Username, UID: r.Spec.UID, Groups: r.Spec.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Group: def.Group, Version: "*", Resource: def.Plural, Subresource: sub,
		},
	}})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

func (a *approver) approve(ctx context.Context, r *certificatesv1.CertificateSigningRequest, message string) error {
	r = r.DeepCopy()
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: message,
	})
	_, err := a.requests.UpdateSub(ctx, "approval", r)
	return err
}
