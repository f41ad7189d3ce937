package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// validateProjected checks a volume that is put together from several sources;
// no two of them may write one file.
func validateProjected(errs *resource.Errors, p *corev1.ProjectedVolumeSource) {
	check.Mode(errs, "defaultMode", p.DefaultMode)
	paths := map[string]bool{}
	claim := func(path string, value any) {
		if path == "" {
			return
		}
		if paths[path] {
			errs.Invalid("", value, "conflicting duplicate paths")
		}
		paths[path] = true
	}
	for i := range p.Sources {
		validateProjection(errs, errs.At("sources[%d]", i), &p.Sources[i], claim)
	}
}

func validateProjection(volume, errs *resource.Errors, s *corev1.VolumeProjection, claim func(path string, value any)) {
	sources := 0
	if s.Secret != nil {
		sources++
		check.Required(errs, "secret.name", s.Secret.Name)
		validateKeysToPaths(errs.At("secret"), s.Secret.Items)
		for _, item := range s.Secret.Items {
			claim(item.Path, s.Secret.Name)
		}
	}
	if s.ConfigMap != nil {
		sources++
		check.Required(errs, "configMap.name", s.ConfigMap.Name)
		validateKeysToPaths(errs.At("configMap"), s.ConfigMap.Items)
		for _, item := range s.ConfigMap.Items {
			claim(item.Path, s.ConfigMap.Name)
		}
	}
	if s.DownwardAPI != nil {
		sources++
		for i := range s.DownwardAPI.Items {
			validateDownwardAPIFile(errs.At("downwardAPI"), &s.DownwardAPI.Items[i])
			claim(s.DownwardAPI.Items[i].Path, s.DownwardAPI.Items[i].Path)
		}
	}
	if s.ServiceAccountToken != nil {
		sources++
		validateTokenProjection(volume, errs.At("serviceAccountToken"), s.ServiceAccountToken)
	}
	if s.ClusterTrustBundle != nil {
		sources++
		validateTrustBundle(errs.At("clusterTrustBundle"), s.ClusterTrustBundle)
		claim(s.ClusterTrustBundle.Path, s.ClusterTrustBundle.Path)
	}
	if s.PodCertificate != nil {
		sources++
		validatePodCertificate(errs.At("podCertificate"), s.PodCertificate)
		claim(s.PodCertificate.CredentialBundlePath, s.PodCertificate.CredentialBundlePath)
		claim(s.PodCertificate.KeyPath, s.PodCertificate.KeyPath)
		claim(s.PodCertificate.CertificateChainPath, s.PodCertificate.CertificateChainPath)
	}
	if sources > 1 {
		errs.Forbidden("", "may not specify more than 1 volume type per source")
	}
}

func validateTokenProjection(volume, errs *resource.Errors, t *corev1.ServiceAccountTokenProjection) {
	if t.ExpirationSeconds != nil {
		seconds := *t.ExpirationSeconds
		if seconds < 10*60 {
			errs.Invalid("expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
		}
		if seconds > 1<<32 {
			errs.Invalid("expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
		}
	}
	if t.Path == "" {
		volume.Required("path", "")
		return
	}
	check.LocalPath(volume, "path", t.Path)
}

func validateTrustBundle(errs *resource.Errors, b *corev1.ClusterTrustBundleProjection) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		errs.Invalid("", b, "only one of name and signerName may be used")
	case b.Name != nil:
		if *b.Name == "" {
			errs.Required("name", "must be a valid object name")
		}
		checkTrustBundleName(errs, "name", *b.Name)
		if b.LabelSelector != nil {
			errs.Invalid("labelSelector", b.LabelSelector, "labelSelector must be unset if name is specified")
		}
	case b.SignerName != nil:
		if *b.SignerName == "" {
			errs.Required("signerName", "must be a valid signer name")
		}
		checkSignerName(errs, "signerName", *b.SignerName)
		check.LabelSelector(errs, "labelSelector", b.LabelSelector)
	default:
		errs.Required("", "either name or signerName must be specified")
	}
	check.Required(errs, "path", b.Path)
	check.LocalPath(errs, "path", b.Path)
}

// checkTrustBundleName accepts "example.com:signer:name", whose first parts are
// those of the signer, or a plain name.
func checkTrustBundleName(errs *resource.Errors, at, name string) {
	plain := name
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		plain = name[i+1:]
	}
	for _, msg := range utilvalidation.IsDNS1123Subdomain(plain) {
		errs.Invalid(at, name, fmt.Sprintf("not a valid clustertrustbundlename: %v", msg))
	}
}

// checkSignerName accepts "example.com/signer".
func checkSignerName(errs *resource.Errors, at, name string) {
	check.Required(errs, at, name)
	domain, path, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(path, "/") {
		errs.Invalid(at, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
		return
	}
	for _, msg := range utilvalidation.IsDNS1123Subdomain(domain) {
		errs.Invalid(at, domain, fmt.Sprintf("validating label %q: %s", domain, msg))
	}
	for _, msg := range utilvalidation.IsDNS1123Subdomain(path) {
		errs.Invalid(at, name, fmt.Sprintf("validating label %q: %s", path, msg))
	}
}

func validatePodCertificate(errs *resource.Errors, c *corev1.PodCertificateProjection) {
	checkSignerName(errs, "signerName", c.SignerName)
	check.RequiredOneOf(errs, "keyType", c.KeyType, "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096")
	if c.MaxExpirationSeconds != nil && *c.MaxExpirationSeconds < 3600 {
		errs.Invalid("maxExpirationSeconds", *c.MaxExpirationSeconds, "must be greater than or equal to 3600")
	}
	if c.CredentialBundlePath == "" && c.KeyPath == "" && c.CertificateChainPath == "" {
		errs.Required("", "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")
	}
	check.LocalPath(errs, "credentialBundlePath", c.CredentialBundlePath)
	check.LocalPath(errs, "keyPath", c.KeyPath)
	check.LocalPath(errs, "certificateChainPath", c.CertificateChainPath)
}
