package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// maxTrustBundle is how many bytes the certificates of a bundle may have.
const maxTrustBundle = 1 << 20

// ClusterTrustBundles hold the certificates of authorities, for pods to believe.
var ClusterTrustBundles = resource.Define(resource.Spec[*certificatesv1.ClusterTrustBundle]{
	Names: resource.Names{
		Group: "certificates.k8s.io", Version: "v1", Kind: "ClusterTrustBundle", Plural: "clustertrustbundles",
		NameRule: resource.PathSegment, // the rest depends on the signer
	},
	Update: resource.UpdateNeedsRevision,
	Validate: func(obj, old *certificatesv1.ClusterTrustBundle, errs *resource.Errors) {
		errs.Refuse("metadata.name", obj.Name, wrongBundleName(obj.Name, obj.Spec.SignerName))
		if obj.Spec.SignerName != "" {
			validateSignerName(obj.Spec.SignerName, errs)
		}
		if old == nil || obj.Spec.TrustBundle != old.Spec.TrustBundle {
			validateTrustBundle(obj.Spec.TrustBundle, errs)
		}
		if old != nil && obj.Spec.SignerName != old.Spec.SignerName {
			errs.Immutable("spec.signerName", obj.Spec.SignerName)
		}
	},
	Ageless: true,
	Columns: []resource.Column[*certificatesv1.ClusterTrustBundle]{{
		Name: "SignerName", Description: certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"],
		Value: func(b *certificatesv1.ClusterTrustBundle) any {
			if b.Spec.SignerName == "" {
				return "<none>"
			}
			return b.Spec.SignerName
		},
	}},
	Fields: map[string]func(*certificatesv1.ClusterTrustBundle) string{
		"spec.signerName": func(b *certificatesv1.ClusterTrustBundle) string { return b.Spec.SignerName },
	},
	Versions: []resource.Version[*certificatesv1.ClusterTrustBundle]{
		resource.SameWire[*certificatesv1beta1.ClusterTrustBundle](resource.Version[*certificatesv1.ClusterTrustBundle]{
			Group: "certificates.k8s.io", Version: "v1beta1",
			Deprecated: "certificates.k8s.io/v1beta1 ClusterTrustBundle is deprecated in v1.37+, unavailable in v1.40+; use certificates.k8s.io/v1 ClusterTrustBundle",
		}),
		resource.SameWire[*certificatesv1alpha1.ClusterTrustBundle](resource.Version[*certificatesv1.ClusterTrustBundle]{
			Group: "certificates.k8s.io", Version: "v1alpha1", OffByDefault: true,
			Deprecated: "certificates.k8s.io/v1alpha1 ClusterTrustBundle is deprecated in v1.34+, unavailable in v1.37+",
		}),
	},
})

// wrongBundleName is what is wrong with the name of a bundle: that of a signer's begins
// with the signer's, its slash as a colon.
func wrongBundleName(name, signer string) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return resource.DNS1123Subdomain(name, false)
	}
	prefix := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, prefix)}
	}
	return resource.DNS1123Subdomain(rest, false)
}

// validateTrustBundle wants certificates of authorities, at least one, and each once.
func validateTrustBundle(text string, errs *resource.Errors) {
	if len(text) > maxTrustBundle {
		errs.TooLong("spec.trustBundle", maxTrustBundle)
		return
	}
	before, seen := errs.Len(), map[string][]int{}
	var order []string
	rest := []byte(text)
	for i := 0; ; i++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if wrong := wrongAnchor(block); wrong != "" {
			errs.Invalid("spec.trustBundle", "<value omitted>", fmt.Sprintf("entry %d %s", i, wrong))
			continue
		}
		der := string(block.Bytes)
		if seen[der] == nil {
			order = append(order, der)
		}
		seen[der] = append(seen[der], i)
	}
	if errs.Len() > before {
		return // what else is wrong may follow from that
	}
	if len(order) == 0 {
		errs.Invalid("spec.trustBundle", "<value omitted>", "at least one trust anchor must be provided")
	}
	for _, der := range order {
		if at := seen[der]; len(at) > 1 {
			errs.Invalid("spec.trustBundle", "<value omitted>", fmt.Sprintf("duplicate trust anchor (indices %v)", at))
		}
	}
}

// wrongAnchor is why a block is no certificate of an authority; empty: it is one.
func wrongAnchor(block *pem.Block) string {
	if block.Type != "CERTIFICATE" {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) > 0 {
		return "has PEM block headers"
	}
	switch cert, err := x509.ParseCertificate(block.Bytes); {
	case err != nil:
		return "does not parse as X.509"
	case !cert.IsCA:
		return "does not have the CA bit set"
	case !cert.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
