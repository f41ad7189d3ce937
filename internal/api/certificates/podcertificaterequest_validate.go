package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kemudi/kemudi/internal/resource"
)

// What a pod's request may come to.
const (
	maxUID              = 128
	maxKeyMaterial      = 10 << 10
	maxChain            = 100 << 10
	maxUserAnnotations  = 256 << 10
	leastSeconds        = 3600
	mostSeconds         = 91 * 86400
	mostOfOwnSeconds    = 86400 // of the signers of kubernetes.io
	nearNow             = 5 * time.Minute
	refreshAtLeastApart = 10 * time.Minute
)

func validatePodRequest(obj, old *certificatesv1.PodCertificateRequest, errs *resource.Errors) {
	if old != nil {
		if !equality.Semantic.DeepEqual(obj.Spec, old.Spec) {
			errs.Immutable("spec", obj.Spec)
		}
		return
	}
	s := &obj.Spec
	validateSignerName(s.SignerName, errs)
	validateUserAnnotations(s.UnverifiedUserAnnotations, errs)
	errs.Refuse("spec.podName", s.PodName, resource.DNS1123Subdomain(s.PodName, false))
	validateUID("spec.podUID", s.PodUID, errs)
	errs.Refuse("spec.serviceAccountName", s.ServiceAccountName, validation.ValidateServiceAccountName(s.ServiceAccountName, false))
	validateUID("spec.serviceAccountUID", s.ServiceAccountUID, errs)
	errs.Refuse("spec.nodeName", s.NodeName, resource.DNS1123Subdomain(string(s.NodeName), false))
	validateUID("spec.nodeUID", s.NodeUID, errs)
	if s.MaxExpirationSeconds == nil {
		errs.Required("spec.maxExpirationSeconds", "must be set")
		return
	}
	most := int32(mostSeconds)
	if domain, _, _ := strings.Cut(s.SignerName, "/"); domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		most = mostOfOwnSeconds
	}
	if n := *s.MaxExpirationSeconds; n < leastSeconds || n > most {
		errs.Invalid("spec.maxExpirationSeconds", n, fmt.Sprintf("must be in the range [%d, %d]", leastSeconds, most))
	}
	validatePodKey(obj, errs)
}

func validateUID(path string, uid types.UID, errs *resource.Errors) {
	if uid == "" {
		errs.Invalid(path, uid, "must not be empty")
	}
	if len(uid) > maxUID {
		errs.TooLong(path, maxUID)
	}
}

// validateUserAnnotations wants names with a domain.
func validateUserAnnotations(given map[string]string, errs *resource.Errors) {
	size := 0
	for key, value := range given {
		size += len(key) + len(value)
		lower := strings.ToLower(key)
		errs.Refuse("spec.unverifiedUserAnnotations", key, utilvalidation.IsQualifiedName(lower))
		if !strings.Contains(lower, "/") {
			errs.Invalid("spec.unverifiedUserAnnotations", key, "annotation key must be a domain-prefixed path (such as \"acme.io/foo\")")
		}
	}
	if size > maxUserAnnotations {
		errs.TooLong("spec.unverifiedUserAnnotations", maxUserAnnotations)
	}
}

// validatePodKey wants a request for a certificate, or in the older version a key, with
// what proves that the pod has the private one.
func validatePodKey(r *certificatesv1.PodCertificateRequest, errs *resource.Errors) {
	key, proof := podKey(r)
	stub := r.Spec.StubPKCS10Request
	switch {
	case len(stub) > maxKeyMaterial:
		errs.TooLong("spec.stubPKCS10Request", maxKeyMaterial)
	case len(key) > maxKeyMaterial:
		errs.TooLong("spec.pkixPublicKey", maxKeyMaterial)
	case len(proof) > maxKeyMaterial:
		errs.TooLong("spec.proofOfPossession", maxKeyMaterial)
	case len(stub) > 0 && len(key) == 0 && len(proof) == 0:
		req, err := x509.ParseCertificateRequest(stub)
		if err != nil {
			errs.Invalid("spec.stubPKCS10Request", field.OmitValueType{}, "must be a valid PKCS#10 certificate signing request")
			return
		}
		if err := req.CheckSignature(); err != nil {
			errs.Invalid("spec.stubPKCS10Request", field.OmitValueType{}, "could not verify PKCS#10 signature")
			return
		}
		validateKeyType("spec.stubPKCS10Request", req.PublicKey, errs)
	case len(stub) == 0 && len(key) > 0 && len(proof) > 0:
		pub, err := x509.ParsePKIXPublicKey(key)
		if err != nil {
			errs.Invalid("spec.pkixPublicKey", key, "must be a valid PKIX-serialized public key")
			return
		}
		if validateKeyType("spec.pkixPublicKey", pub, errs) && !proven(pub, string(r.Spec.PodUID), proof) {
			errs.Invalid("spec.proofOfPossession", field.OmitValueType{}, "could not verify proof-of-possession signature")
		}
	case len(stub) == 0 && len(key) == 0 && len(proof) == 0:
		errs.Required("spec.stubPKCS10Request", "must be set")
	default:
		errs.Invalid("spec", field.OmitValueType{}, "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set")
	}
}

// validateKeyType reports whether a key is of a kind that pods may have.
func validateKeyType(path string, key any, errs *resource.Errors) bool {
	switch key := key.(type) {
	case ed25519.PublicKey:
		return true
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
			return true
		}
		errs.Invalid(path, "curve "+key.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521")
	case *rsa.PublicKey:
		bits := key.Size() * 8
		if bits == 3072 || bits == 4096 {
			return true
		}
		errs.Invalid(path, fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")
	default:
		errs.Invalid(path, field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")
	}
	return false
}

// proven reports whether who has the private key has signed the pod's UID.
func proven(key any, uid string, proof []byte) bool {
	hash := sha256.Sum256([]byte(uid))
	switch key := key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, []byte(uid), proof)
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, hash[:], proof)
	case *rsa.PublicKey:
		return rsa.VerifyPSS(key, crypto.SHA256, hash[:], proof, nil) == nil
	}
	return false
}

// validatePodRequestStatus: a request ends once, in one of three ways, and the status says
// all of that at a time.
func validatePodRequestStatus(obj, old *certificatesv1.PodCertificateRequest, errs *resource.Errors) {
	if !validatePodConditions(obj, errs) {
		return
	}
	if podRequestState(old) != "" {
		if !equality.Semantic.DeepEqual(obj.Status, old.Status) {
			errs.Invalid("status", field.OmitValueType{}, "immutable after PodCertificateRequest is issued, denied, or failed")
		}
		return
	}
	switch podRequestState(obj) {
	case certificatesv1.PodCertificateRequestConditionTypeIssued:
		validateIssued(obj, errs)
	case "":
		if !equality.Semantic.DeepEqual(obj.Status, old.Status) {
			errs.Invalid("status", field.OmitValueType{}, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
		}
	default:
		if !equality.Semantic.DeepEqual(obj.Status, certificatesv1.PodCertificateRequestStatus{Conditions: obj.Status.Conditions}) {
			errs.Invalid("status", field.OmitValueType{}, "non-condition status fields must be empty when denying or failing the PodCertificateRequest")
		}
	}
}

func validatePodConditions(r *certificatesv1.PodCertificateRequest, errs *resource.Errors) bool {
	before := errs.Len()
	ends := 0
	for i, c := range r.Status.Conditions {
		at := errs.At("status.conditions[%d]", i)
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed:
			if ends++; ends > 1 {
				at.Invalid("type", c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`)
			}
			if c.Status != metav1.ConditionTrue {
				resource.NotSupported(at, "status", c.Status, metav1.ConditionTrue)
			}
		default:
			resource.NotSupported(at, "type", c.Type, certificatesv1.PodCertificateRequestConditionTypeIssued,
				certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed)
		}
	}
	errs.Add(metavalidation.ValidateConditions(r.Status.Conditions, errs.Path("status.conditions"))...)
	return errs.Len() == before
}

// validateIssued wants a chain whose first certificate is for the pod's key, and times that
// are those of it.
func validateIssued(r *certificatesv1.PodCertificateRequest, errs *resource.Errors) {
	const path = "status.certificateChain"
	s := &r.Status
	if len(s.CertificateChain) > maxChain {
		errs.TooLong(path, maxChain)
		return
	}
	block, rest := pem.Decode([]byte(s.CertificateChain))
	if block == nil {
		errs.Invalid(path, s.CertificateChain, "issued certificate chain must contain at least one certificate")
		return
	}
	if block.Type != "CERTIFICATE" {
		errs.Invalid(path, s.CertificateChain, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
		return
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		errs.Invalid(path, s.CertificateChain, "leaf certificate does not parse as valid X.509")
		return
	}
	validateLeafNames(leaf, errs)
	if !isForKey(leaf, r) {
		errs.Invalid(path, s.CertificateChain, "leaf certificate was not issued to the requested public key")
		return
	}
	if !validateTimes(r, leaf, errs) {
		return
	}
	for {
		if block, rest = pem.Decode(rest); block == nil {
			return
		}
		if block.Type != "CERTIFICATE" {
			errs.Invalid(path, s.CertificateChain, "issued certificate chain must consist entirely of CERTFICATE PEM blocks")
			return
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			errs.Invalid(path, s.CertificateChain, "intermediate certificate does not parse as valid X.509")
			return
		}
	}
}

func validateLeafNames(leaf *x509.Certificate, errs *resource.Errors) {
	const path = "status.certificateChain"
	for _, name := range leaf.DNSNames {
		if name == "" {
			errs.Invalid(path, name, "leaf certificate should not contain empty DNSName")
		}
		if strings.Contains(name, "..") {
			errs.Invalid(path, name, "leaf certificate's DNSName should not contain '..'")
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			errs.Invalid(path, name, "leaf certificate's DNSName should not start or end with '.'")
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs.Invalid(path, address, "leaf certificate should not contain invalid EmailAddress")
		}
	}
}

// isForKey reports whether a certificate is for the key that was asked for.
func isForKey(leaf *x509.Certificate, r *certificatesv1.PodCertificateRequest) bool {
	var asked any
	if stub := r.Spec.StubPKCS10Request; len(stub) > 0 {
		if req, err := x509.ParseCertificateRequest(stub); err == nil {
			asked = req.PublicKey
		}
	} else {
		key, _ := podKey(r)
		if pub, err := x509.ParsePKIXPublicKey(key); err == nil {
			asked = pub
		}
	}
	key, ok := asked.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(leaf.PublicKey)
}

// validateTimes reports whether the times of the status are there, those of the certificate,
// and as far apart as they must be. What follows from a wrong one is not told.
func validateTimes(r *certificatesv1.PodCertificateRequest, leaf *x509.Certificate, errs *resource.Errors) bool {
	s, before := &r.Status, errs.Len()
	if s.NotBefore == nil {
		errs.Required("status.notBefore", "must be present and consistent with the issued certificate")
	}
	if s.NotAfter == nil {
		errs.Required("status.notAfter", "must be present and consistent with the issued certificate")
	}
	if s.BeginRefreshAt == nil {
		errs.Required("status.beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]")
	}
	if errs.Len() > before {
		return false
	}
	life, most := leaf.NotAfter.Sub(leaf.NotBefore), time.Duration(*r.Spec.MaxExpirationSeconds)*time.Second
	switch away := time.Since(s.NotBefore.Time); {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		errs.Invalid("status.notBefore", s.NotBefore.Time, "must be set to the NotBefore time encoded in the leaf certificate")
	case away.Abs() >= nearNow:
		errs.Invalid("status.notBefore", s.NotBefore.Time, "must be set to within 5 minutes of kube-apiserver's current time")
	case !s.NotAfter.Time.Equal(leaf.NotAfter):
		errs.Invalid("status.notAfter", s.NotAfter.Time, "must be set to the NotAfter time encoded in the leaf certificate")
	case life < time.Hour:
		errs.Invalid("status.certificateChain", life, "leaf certificate lifetime must be >= 1 hour")
	case life > most:
		errs.Invalid("status.certificateChain", life, fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", *r.Spec.MaxExpirationSeconds))
	case s.BeginRefreshAt.Time.Before(s.NotBefore.Add(refreshAtLeastApart)):
		errs.Invalid("status.beginRefreshAt", s.BeginRefreshAt.Time, "must be at least 10 minutes after status.notBefore")
	case s.BeginRefreshAt.Time.After(s.NotAfter.Add(-refreshAtLeastApart)):
		errs.Invalid("status.beginRefreshAt", s.BeginRefreshAt.Time, "must be at least 10 minutes before status.notAfter")
	default:
		return true
	}
	return false
}
