package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/resource"
)

// legacyRequests are requests of v1beta1, which need name neither signer nor usages.
func legacyRequests() []resource.Version[*certificatesv1.CertificateSigningRequest] {
	return []resource.Version[*certificatesv1.CertificateSigningRequest]{resource.SameWire[*certificatesv1beta1.CertificateSigningRequest](resource.Version[*certificatesv1.CertificateSigningRequest]{
		Group: "certificates.k8s.io", Version: "v1beta1",
		Deprecated: "certificates.k8s.io/v1beta1 CertificateSigningRequest is deprecated in v1.19+, unavailable in v1.22+; use certificates.k8s.io/v1 CertificateSigningRequest",
		Default: func(obj resource.Object) {
			r := obj.(*certificatesv1beta1.CertificateSigningRequest)
			if r.Spec.Usages == nil {
				r.Spec.Usages = []certificatesv1beta1.KeyUsage{certificatesv1beta1.UsageDigitalSignature, certificatesv1beta1.UsageKeyEncipherment}
			}
			if r.Spec.SignerName == nil {
				r.Spec.SignerName = new(signerOf(r))
			}
			for i := range r.Status.Conditions {
				if c := &r.Status.Conditions[i]; c.Status == "" {
					c.Status = corev1.ConditionTrue
				}
			}
		},
		Validate: func(obj, old *certificatesv1.CertificateSigningRequest, errs *resource.Errors) {
			if old == nil && obj.Spec.SignerName == legacySigner {
				old = &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: legacySigner}}
				validateSpec(obj, old, errs)
				return
			}
			validateRequest(obj, old, anyone, errs)
		},
	})}
}

// signerOf is the signer of a request that names none: that of node agents for what only
// they ask for.
func signerOf(r *certificatesv1beta1.CertificateSigningRequest) string {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return legacySigner
	}
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return legacySigner
	}
	node := strings.HasPrefix(req.Subject.CommonName, "system:node:") && slices.Equal(req.Subject.Organization, []string{"system:nodes"}) &&
		len(req.EmailAddresses) == 0 && len(req.URIs) == 0
	named := len(req.DNSNames)+len(req.IPAddresses) > 0
	asks := func(use certificatesv1beta1.KeyUsage) bool {
		others := slices.DeleteFunc(slices.Clone(r.Spec.Usages), func(u certificatesv1beta1.KeyUsage) bool {
			return u == use || u == certificatesv1beta1.UsageDigitalSignature || u == certificatesv1beta1.UsageKeyEncipherment
		})
		return len(others) == 0 && slices.Contains(r.Spec.Usages, use) && slices.Contains(r.Spec.Usages, certificatesv1beta1.UsageDigitalSignature)
	}
	switch {
	case node && !named && asks(certificatesv1beta1.UsageClientAuth):
		return certificatesv1.KubeAPIServerClientKubeletSignerName
	case node && named && asks(certificatesv1beta1.UsageServerAuth) && r.Spec.Username == req.Subject.CommonName:
		return certificatesv1.KubeletServingSignerName
	}
	return legacySigner
}
