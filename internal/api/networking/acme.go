package networking

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	// AnnotationACME of an Ingress or a Gateway, if it is true, has the Secrets of its TLS filled by an ACME server.
	AnnotationACME = "kemudi.io/acme"
	// AnnotationACMEAccount of such an object is the thumbprint of the cluster's account: who knows it can answer all
	// challenges of HTTP for the hosts.
	AnnotationACMEAccount = "kemudi.io/acme-account"
	// AnnotationACMEServer of a Secret is the ACME server that has filled it.
	AnnotationACMEServer = "kemudi.io/acme-server"
)

// WantsACME says that an Ingress or a Gateway wants its Secrets filled.
func WantsACME(o metav1.Object) bool { return o.GetAnnotations()[AnnotationACME] == "true" }
