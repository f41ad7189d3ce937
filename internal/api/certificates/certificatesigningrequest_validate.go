package certificates

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/resource"
)

// writer says who may have changed what in an update.
type writer int

const (
	anyone   writer = iota // neither certificate nor approval
	approver               // Approved and Denied conditions
	signer                 // the certificate
)

// legacySigner signed what had no signer name. It is let through only where it
// is stored already.
const legacySigner = "kubernetes.io/legacy-unknown"

// usages are all that a certificate may be asked for, in the order that
// messages list them.
var usages = []certificatesv1.KeyUsage{
	certificatesv1.UsageAny, certificatesv1.UsageCertSign, certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning,
	certificatesv1.UsageContentCommitment, certificatesv1.UsageCRLSign, certificatesv1.UsageDataEncipherment,
	certificatesv1.UsageDecipherOnly, certificatesv1.UsageDigitalSignature, certificatesv1.UsageEmailProtection,
	certificatesv1.UsageEncipherOnly, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel, certificatesv1.UsageIPsecUser,
	certificatesv1.UsageKeyAgreement, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC,
	certificatesv1.UsageOCSPSigning, certificatesv1.UsageServerAuth, certificatesv1.UsageSigning, certificatesv1.UsageSMIME, certificatesv1.UsageTimestamping,
}

// validateRequest checks a request; what is wrong with a stored one already
// does not stand in the way of an update.
func validateRequest(obj, old *certificatesv1.CertificateSigningRequest, by writer, errs *resource.Errors) {
	validateSpec(obj, old, errs)
	validateConditions(obj, old, errs)
	unchanged := old != nil && bytes.Equal(obj.Status.Certificate, old.Status.Certificate)
	tolerated := old != nil && checkCertificate(old.Status.Certificate) != nil
	if !unchanged && !tolerated {
		if err := checkCertificate(obj.Status.Certificate); err != nil {
			errs.Invalid("status.certificate", "<certificate data>", err.Error())
		}
	}
	if old != nil {
		validateChange(obj, old, by, errs)
	}
}

func validateSpec(obj, old *certificatesv1.CertificateSigningRequest, errs *resource.Errors) {
	s := &obj.Spec
	if err := checkRequest(s.Request); err != nil {
		errs.Invalid("spec.request", s.Request, err.Error())
	}
	if len(s.Usages) == 0 {
		errs.Required("spec.usages", "")
	}
	unknown := func(u certificatesv1.KeyUsage) bool { return !slices.Contains(usages, u) }
	if old == nil || !slices.ContainsFunc(old.Spec.Usages, unknown) {
		for i, u := range s.Usages {
			if unknown(u) {
				resource.NotSupported(errs.At("spec.usages[%d]", i), "", u, usages...)
			}
		}
	}
	if old == nil || !repeats(old.Spec.Usages) {
		for i, u := range s.Usages {
			if slices.Contains(s.Usages[:i], u) {
				errs.At("spec.usages[%d]", i).Duplicate("", u)
			}
		}
	}
	if s.SignerName == legacySigner && (old == nil || old.Spec.SignerName != legacySigner) {
		errs.Invalid("spec.signerName", s.SignerName, "the legacy signerName is not allowed via this API version")
	} else {
		validateSignerName(s.SignerName, errs)
	}
	if e := s.ExpirationSeconds; e != nil && *e < 600 {
		errs.Invalid("spec.expirationSeconds", *e, "may not specify a duration less than 600 seconds (10 minutes)")
	}
}

// validateSignerName demands a domain, a slash and a name whose parts between
// dots may be as long as a resource's name.
func validateSignerName(name string, errs *resource.Errors) {
	if name == "" {
		errs.Required("spec.signerName", "")
		return
	}
	domain, path, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(path, "/") {
		errs.Invalid("spec.signerName", name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
		return
	}
	if len(domain) > validation.DNS1123SubdomainMaxLength {
		errs.TooLong("spec.signerName", validation.DNS1123SubdomainMaxLength)
	}
	refuseFirst := func(part string, labels []string, rule func(string) []string) {
		for _, label := range labels {
			if messages := rule(label); len(messages) > 0 {
				for _, m := range messages {
					errs.Invalid("spec.signerName", part, fmt.Sprintf("validating label %q: %s", label, m))
				}
				return
			}
		}
	}
	labels := strings.Split(domain, ".")
	refuseFirst(domain, labels, validation.IsDNS1123Label)
	if len(labels) < 2 {
		errs.Invalid("spec.signerName", domain, "should be a domain with at least two segments separated by dots")
	}
	refuseFirst(path, strings.Split(path, "."), validation.IsDNS1123Subdomain)
	// A domain, a slash, and a namespace, a dot and a name.
	if limit := validation.DNS1123SubdomainMaxLength + 1 + validation.DNS1123LabelMaxLength + 1 + validation.DNS1123SubdomainMaxLength; len(name) > limit {
		errs.TooLong("spec.signerName", limit)
	}
}

func validateConditions(obj, old *certificatesv1.CertificateSigningRequest, errs *resource.Errors) {
	allowEmpty := old != nil && slices.Contains(conditionTypes(old), "")
	allowDuplicate := old != nil && repeats(conditionTypes(old))
	allowBoth := old != nil && len(conditions(old, certificatesv1.CertificateApproved)) > 0 && len(conditions(old, certificatesv1.CertificateDenied)) > 0
	types := conditionTypes(obj)
	for i, c := range obj.Status.Conditions {
		at := errs.At("status.conditions[%d]", i)
		if c.Type == "" && !allowEmpty {
			at.Required("type", "")
		}
		final := c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed
		switch {
		case c.Status == "":
			at.Required("status", "")
		case final && c.Status != corev1.ConditionTrue:
			resource.NotSupported(at, "status", c.Status, corev1.ConditionTrue)
		case c.Status != corev1.ConditionTrue && c.Status != corev1.ConditionFalse && c.Status != corev1.ConditionUnknown:
			resource.NotSupported(at, "status", c.Status, corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)
		}
		if !allowBoth && (c.Type == certificatesv1.CertificateApproved && slices.Contains(types[:i], certificatesv1.CertificateDenied) ||
			c.Type == certificatesv1.CertificateDenied && slices.Contains(types[:i], certificatesv1.CertificateApproved)) {
			at.Invalid("type", c.Type, "Approved and Denied conditions are mutually exclusive")
		}
		if !allowDuplicate && slices.Contains(types[:i], c.Type) {
			at.Duplicate("type", c.Type)
		}
	}
}

// validateChange refuses to take back a decision, and to decide or sign through
// another door than the one for it.
func validateChange(obj, old *certificatesv1.CertificateSigningRequest, by writer, errs *resource.Errors) {
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		was, is := conditions(old, t), conditions(obj, t)
		switch {
		case len(is) < len(was):
			errs.Forbidden("status.conditions", fmt.Sprintf("updates may not remove a condition of type %q", t))
		case by == approver || t == certificatesv1.CertificateFailed:
		case len(is) > len(was):
			errs.Forbidden("status.conditions", fmt.Sprintf("updates may not add a condition of type %q", t))
		case !equality.Semantic.DeepEqual(is, was):
			errs.Forbidden("status.conditions", fmt.Sprintf("updates may not modify a condition of type %q", t))
		}
	}
	if bytes.Equal(obj.Status.Certificate, old.Status.Certificate) {
		return
	}
	if by != signer {
		errs.Forbidden("status.certificate", "updates may not set certificate content")
	} else if len(old.Status.Certificate) > 0 {
		errs.Forbidden("status.certificate", "updates may not modify existing certificate content")
	}
}

// checkRequest reports what is wrong with a PEM encoded PKCS#10 request.
func checkRequest(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return csr.CheckSignature()
}

// checkCertificate reports what is wrong with PEM encoded certificates; none is
// nothing wrong.
func checkCertificate(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	blocks := 0
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) != 0 {
			return errors.New("no PEM block headers are permitted")
		}
		certs, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certs) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
		blocks++
	}
	if blocks == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}

func conditions(r *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) []certificatesv1.CertificateSigningRequestCondition {
	var found []certificatesv1.CertificateSigningRequestCondition
	for _, c := range r.Status.Conditions {
		if c.Type == t {
			found = append(found, c)
		}
	}
	return found
}

func conditionTypes(r *certificatesv1.CertificateSigningRequest) []certificatesv1.RequestConditionType {
	types := make([]certificatesv1.RequestConditionType, len(r.Status.Conditions))
	for i, c := range r.Status.Conditions {
		types[i] = c.Type
	}
	return types
}

func repeats[E comparable](list []E) bool {
	for i, e := range list {
		if slices.Contains(list[:i], e) {
			return true
		}
	}
	return false
}
