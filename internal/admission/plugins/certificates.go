package plugins

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"reflect"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/certificates"
)

// certificateApproval lets only those approve requests to a signer who may do
// so for that signer.
func certificateApproval(o *admission.Options) admission.Plugin {
	return admission.Plugin{Name: "CertificateApproval", Validate: func(ctx context.Context, a *admission.Attributes) error {
		old, ok := a.Old.(*certificatesv1.CertificateSigningRequest)
		if !ok || !a.Is(certificates.CertificateSigningRequests.Def, "approval", admission.Update) {
			return nil
		}
		if !mayForSigner(ctx, o, a.User, "approve", old.Spec.SignerName) {
			return a.Forbid("user not permitted to approve requests with signerName %q", old.Spec.SignerName)
		}
		return nil
	}}
}

// certificateSigning lets only those put a certificate into a request who may
// sign for its signer.
func certificateSigning(o *admission.Options) admission.Plugin {
	return admission.Plugin{Name: "CertificateSigning", Validate: func(ctx context.Context, a *admission.Attributes) error {
		old, ok := a.Old.(*certificatesv1.CertificateSigningRequest)
		if !ok || !a.Is(certificates.CertificateSigningRequests.Def, "status", admission.Update) {
			return nil
		}
		now, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
		if !ok || bytes.Equal(now.Status.Certificate, old.Status.Certificate) && reflect.DeepEqual(now.Status.Conditions, old.Status.Conditions) {
			return nil
		}
		if !mayForSigner(ctx, o, a.User, "sign", old.Spec.SignerName) {
			return a.Forbid("user not permitted to sign requests with signerName %q", old.Spec.SignerName)
		}
		return nil
	}}
}

// clusterTrustBundleAttest lets ClusterTrustBundles of a signer be written only by who has the verb attest
// for that signer.
func clusterTrustBundleAttest(o *admission.Options) admission.Plugin {
	return admission.Plugin{Name: "ClusterTrustBundleAttest", Validate: func(ctx context.Context, a *admission.Attributes) error {
		now, ok := a.Object.(*certificatesv1.ClusterTrustBundle)
		if !ok || !a.Is(certificates.ClusterTrustBundles.Def, "", admission.Create, admission.Update) || now.Spec.SignerName == "" {
			return nil
		}
		if old, ok := a.Old.(*certificatesv1.ClusterTrustBundle); ok && old.Spec == now.Spec {
			return nil // its finalizers go, or the like
		}
		if !mayForSigner(ctx, o, a.User, "attest", now.Spec.SignerName) {
			return a.Forbid("user not permitted to attest for signerName %q", now.Spec.SignerName)
		}
		return nil
	}}
}

// mayForSigner asks for the signer by its name, and for all of its domain.
func mayForSigner(ctx context.Context, o *admission.Options, u user.Info, verb, signer string) bool {
	attrs := authorizer.AttributesRecord{User: u, Verb: verb, Name: signer, APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers"}
	if ok, _ := ask(ctx, o, attrs); ok {
		return true
	}
	domain, _, _ := strings.Cut(signer, "/")
	attrs.Name = domain + "/*"
	ok, _ := ask(ctx, o, attrs)
	return ok
}

// certificateSubjectRestriction keeps people from asking for a client
// certificate of the group that may do everything.
func certificateSubjectRestriction() admission.Plugin {
	return admission.Plugin{Name: "CertificateSubjectRestriction", Validate: func(_ context.Context, a *admission.Attributes) error {
		r, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
		if !ok || !a.Is(certificates.CertificateSigningRequests.Def, "", admission.Create) || r.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
			return nil
		}
		block, _ := pem.Decode(r.Spec.Request)
		if block == nil {
			return nil // refused by validation
		}
		parsed, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			return nil // likewise
		}
		if slices.Contains(parsed.Subject.Organization, user.SystemPrivilegedGroup) {
			return a.Forbid("use of %s signer with %s group is not allowed", certificatesv1.KubeAPIServerClientSignerName, user.SystemPrivilegedGroup)
		}
		return nil
	}}
}
