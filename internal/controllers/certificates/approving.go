package certificates

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/authorization"
	api "github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Approving approves requests of node agents for their client certificates, if
// who asks may have one.
var Approving = controller.New(controller.Spec[*certificatesv1.CertificateSigningRequest]{
	Name:  "certificatesigningrequest-approving-controller",
	For:   api.CertificateSigningRequests,
	Reads: []*resource.Def{core.Nodes.Def, core.Secrets.Def},
	Writes: []controller.Permission{
		{Verb: "update", Def: api.CertificateSigningRequests.Def, Sub: "approval"},
		controller.Create(authorization.SubjectAccessReviews.Def),
		controller.Update(core.Secrets.Def), // the uses of tokens
	},
	Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"signers"}, Verbs: []string{"approve"},
		ResourceNames: []string{certificatesv1.KubeAPIServerClientKubeletSignerName},
	}},
	Workers: 1, // there is little to do
	Setup: func(k *controller.Kit) controller.Reconciler[*certificatesv1.CertificateSigningRequest] {
		return &approver{
			requests: controller.For(k, api.CertificateSigningRequests),
			approval: controller.Writer(k, api.CertificateSigningRequests),
			reviews:  controller.Writer(k, authorization.SubjectAccessReviews),
			nodes:    controller.For(k, core.Nodes),
			secrets:  controller.For(k, core.Secrets),
			joining:  map[string]joining{},
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
	requests controller.Client[*certificatesv1.CertificateSigningRequest]
	approval client.Client[*certificatesv1.CertificateSigningRequest]
	reviews  client.Client[*authorizationv1.SubjectAccessReview]
	nodes    controller.Client[*corev1.Node]
	secrets  controller.Client[*corev1.Secret]
	joining  map[string]joining // by the names of nodes: what the cache may not show yet
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
			return controller.Done, a.decide(ctx, r, req, c.message)
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

// decide approves what who asks may have, unless a machine that joins must not join like this.
func (a *approver) decide(ctx context.Context, r *certificatesv1.CertificateSigningRequest, req *x509.CertificateRequest, message string) error {
	id, joins := authn.BootstrapTokenOf(r.Spec.Username, r.Spec.Groups)
	if !joins {
		return conclude(ctx, a.approval, r, approved(message))
	}
	node := strings.TrimPrefix(req.Subject.CommonName, nodeUser)
	pin, err := pki.PinOf(req.PublicKey)
	if err != nil {
		return err
	}
	if taken := a.taken(node, pin, time.Now()); taken != "" {
		return conclude(ctx, a.approval, r, decision{certificatesv1.CertificateDenied, "NodeNameTaken", taken})
	}
	secret, ok := a.secrets.Get(metav1.NamespaceSystem, authn.BootstrapSecret(id))
	if ok { // one that was revoked meanwhile has let this request in before
		used, err := authn.UseBootstrapToken(secret, pin)
		switch {
		case errors.Is(err, authn.ErrUsedUp):
			return conclude(ctx, a.approval, r, decision{certificatesv1.CertificateDenied, "TokenUsedUp", err.Error()})
		case err != nil:
			return err
		case used != nil:
			if _, err := a.secrets.Update(ctx, used); err != nil {
				return fmt.Errorf("count a use of token %s: %w", id, err)
			}
		}
	}
	if err := conclude(ctx, a.approval, r, approved(message)); err != nil {
		return err
	}
	a.joining[node] = joining{r.Name, pin, time.Now()}
	return nil
}

// decision is what a controller says about a request.
type decision struct {
	kind            certificatesv1.RequestConditionType
	reason, message string
}

// approved is the decision to sign.
func approved(message string) decision {
	return decision{certificatesv1.CertificateApproved, "AutoApproved", message}
}

// conclude writes a decision down.
func conclude(ctx context.Context, requests client.Client[*certificatesv1.CertificateSigningRequest], r *certificatesv1.CertificateSigningRequest, d decision) error {
	r = r.DeepCopy()
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: d.kind, Status: corev1.ConditionTrue, Reason: d.reason, Message: d.message,
	})
	_, err := requests.UpdateSub(ctx, "approval", r)
	return err
}
