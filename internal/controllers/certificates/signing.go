package certificates

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	api "github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/controller"
)

// Options configure signing. The zero value is upstream's.
type Options struct {
	// Life is how long a certificate is good for if the request does not say less
	// (--cluster-signing-duration).
	Life time.Duration
	// Authorities are those of single signers, by the signers' names. If there are some, they are
	// all: for other signers nobody signs.
	Authorities map[string]*pki.Authority
}

// Defaults are the options of a controller that is given none.
func Defaults() Options { return Options{}.withDefaults() }

func (o Options) withDefaults() Options {
	o.Life = cmp.Or(o.Life, 365*24*time.Hour)
	return o
}

const (
	shortestLife = 10 * time.Minute
	clockSkew    = 5 * time.Minute // a certificate begins that much earlier, for clocks that are behind
	longLife     = 8 * time.Hour   // from here on it also ends that much earlier
)

// NewSigning returns the controller that signs approved requests with the
// cluster's authority, or with the signers' own.
func NewSigning(authority *pki.Authority, o Options) *controller.Controller {
	o = o.withDefaults()
	if len(o.Authorities) == 0 {
		o.Authorities = map[string]*pki.Authority{}
		for _, name := range signers {
			o.Authorities[name] = authority
		}
	}
	return controller.New(controller.Spec[*certificatesv1.CertificateSigningRequest]{
		Name:   "certificatesigningrequest-signing-controller",
		For:    api.CertificateSigningRequests,
		Writes: []controller.Permission{controller.UpdateStatus(api.CertificateSigningRequests.Def)},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"signers"}, Verbs: []string{"sign"}, ResourceNames: signers,
		}},
		Workers: 1, // there is little to do
		Setup: func(k *controller.Kit) controller.Reconciler[*certificatesv1.CertificateSigningRequest] {
			return &signer{Options: o, requests: controller.For(k, api.CertificateSigningRequests)}
		},
	})
}

type signer struct {
	Options
	requests controller.Client[*certificatesv1.CertificateSigningRequest]
}

// Reconcile signs an approved request, or says why it does not.
func (s *signer) Reconcile(ctx context.Context, r *certificatesv1.CertificateSigningRequest) (controller.Next, error) {
	if s.Authorities[r.Spec.SignerName] == nil || len(r.Status.Certificate) > 0 ||
		!has(r, certificatesv1.CertificateApproved) || has(r, certificatesv1.CertificateDenied) || has(r, certificatesv1.CertificateFailed) {
		return controller.Done, nil
	}
	req, err := parse(r)
	if err != nil {
		return controller.Done, err
	}
	r = r.DeepCopy()
	if err := demand(r.Spec.SignerName, req, r.Spec.Usages); err != nil {
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: err.Error(),
		})
	} else if r.Status.Certificate, err = s.sign(req, r, time.Now()); err != nil {
		return controller.Done, fmt.Errorf("error auto signing csr: %w", err)
	}
	_, err = s.requests.UpdateStatus(ctx, r)
	return controller.Done, err
}

// sign makes the certificate that a request asks for, in PEM. One by which a node is
// known says which request that was: its access depends on it until the Node is there.
func (s *signer) sign(req *x509.CertificateRequest, r *certificatesv1.CertificateSigningRequest, now time.Time) ([]byte, error) {
	spec, authority := &r.Spec, s.Authorities[r.Spec.SignerName]
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choose a serial number: %w", err)
	}
	limit := authority.Cert.NotAfter
	begin, end := s.span(spec.ExpirationSeconds, now, limit)
	if !now.Before(limit) {
		return nil, fmt.Errorf("the signer has expired: NotAfter=%v", limit)
	}
	template := &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)), RawSubject: req.RawSubject,
		DNSNames: req.DNSNames, IPAddresses: req.IPAddresses, EmailAddresses: req.EmailAddresses, URIs: req.URIs,
		NotBefore: begin, NotAfter: end, BasicConstraintsValid: true,
	}
	if spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName {
		extension, err := pki.RequestExtension(string(r.UID))
		if err != nil {
			return nil, fmt.Errorf("name the request in its certificate: %w", err)
		}
		template.ExtraExtensions = append(template.ExtraExtensions, extension)
	}
	for _, u := range spec.Usages {
		template.KeyUsage |= keyUsages[u]
		if ext, ok := extUsages[u]; ok && !slices.Contains(template.ExtKeyUsage, ext) {
			template.ExtKeyUsage = append(template.ExtKeyUsage, ext)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Cert, req.PublicKey, authority.Key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// span is from when until when a certificate is good. It never outlives its authority, which is good until limit.
func (s *signer) span(seconds *int32, now, limit time.Time) (begin, end time.Time) {
	life := s.Life
	if seconds != nil {
		life = min(life, max(shortestLife, time.Duration(*seconds)*time.Second))
	}
	end = now.Add(life)
	if life >= longLife {
		end = end.Add(-clockSkew)
	}
	if end.After(limit) {
		end = limit
	}
	return now.Add(-clockSkew), end
}

var keyUsages = map[certificatesv1.KeyUsage]x509.KeyUsage{
	certificatesv1.UsageSigning:           x509.KeyUsageDigitalSignature,
	certificatesv1.UsageDigitalSignature:  x509.KeyUsageDigitalSignature,
	certificatesv1.UsageContentCommitment: x509.KeyUsageContentCommitment,
	certificatesv1.UsageKeyEncipherment:   x509.KeyUsageKeyEncipherment,
	certificatesv1.UsageKeyAgreement:      x509.KeyUsageKeyAgreement,
	certificatesv1.UsageDataEncipherment:  x509.KeyUsageDataEncipherment,
	certificatesv1.UsageCertSign:          x509.KeyUsageCertSign,
	certificatesv1.UsageCRLSign:           x509.KeyUsageCRLSign,
	certificatesv1.UsageEncipherOnly:      x509.KeyUsageEncipherOnly,
	certificatesv1.UsageDecipherOnly:      x509.KeyUsageDecipherOnly,
}

var extUsages = map[certificatesv1.KeyUsage]x509.ExtKeyUsage{
	certificatesv1.UsageAny:             x509.ExtKeyUsageAny,
	certificatesv1.UsageServerAuth:      x509.ExtKeyUsageServerAuth,
	certificatesv1.UsageClientAuth:      x509.ExtKeyUsageClientAuth,
	certificatesv1.UsageCodeSigning:     x509.ExtKeyUsageCodeSigning,
	certificatesv1.UsageEmailProtection: x509.ExtKeyUsageEmailProtection,
	certificatesv1.UsageSMIME:           x509.ExtKeyUsageEmailProtection,
	certificatesv1.UsageIPsecEndSystem:  x509.ExtKeyUsageIPSECEndSystem,
	certificatesv1.UsageIPsecTunnel:     x509.ExtKeyUsageIPSECTunnel,
	certificatesv1.UsageIPsecUser:       x509.ExtKeyUsageIPSECUser,
	certificatesv1.UsageTimestamping:    x509.ExtKeyUsageTimeStamping,
	certificatesv1.UsageOCSPSigning:     x509.ExtKeyUsageOCSPSigning,
	certificatesv1.UsageMicrosoftSGC:    x509.ExtKeyUsageMicrosoftServerGatedCrypto,
	certificatesv1.UsageNetscapeSGC:     x509.ExtKeyUsageNetscapeServerGatedCrypto,
}
