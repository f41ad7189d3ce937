package certificates

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of certificates.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		CertificateSigningRequests.Def,
		ClusterTrustBundles.Def,
		PodCertificateRequests.Def,
	}
}
