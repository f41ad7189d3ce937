package networking

import networkingv1 "k8s.io/api/networking/v1"

const (
	// AnnotationACME of an Ingress, if it is true, has the Secrets of its TLS filled by an ACME server.
	AnnotationACME = "kemudi.io/acme"
	// AnnotationACMEAccount of such an Ingress is the thumbprint of the cluster's account: who knows it can answer all
	// challenges of HTTP for the hosts.
	AnnotationACMEAccount = "kemudi.io/acme-account"
	// AnnotationACMEServer of a Secret is the ACME server that has filled it.
	AnnotationACMEServer = "kemudi.io/acme-server"
)

// WantsACME says that an Ingress wants its Secrets filled.
func WantsACME(i *networkingv1.Ingress) bool { return i.Annotations[AnnotationACME] == "true" }
