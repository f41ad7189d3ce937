package loadbalancer

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// internalPool is the name of the pool for Services that are to be reached from within alone.
const internalPool = "internal"

// A vendorSign is an annotation by which the balancers of a cloud are told something that balancers in
// general have, or have not.
type vendorSign struct {
	name string
	says func(value string) bool
}

func isTrue(value string) bool { return strings.EqualFold(value, "true") }

func isInternal(value string) bool { return strings.EqualFold(value, "internal") }

// internalSigns say that a Service is to be reached from within the own network alone, each in the
// words of one cloud.
var internalSigns = []vendorSign{
	{"cloud.google.com/load-balancer-type", isInternal},
	{"networking.gke.io/load-balancer-type", isInternal},
	{"service.beta.kubernetes.io/aws-load-balancer-internal", func(value string) bool { return value == "0.0.0.0/0" || isTrue(value) }},
	{"service.beta.kubernetes.io/aws-load-balancer-scheme", isInternal},
	{"service.beta.kubernetes.io/azure-load-balancer-internal", isTrue},
	{"service.beta.kubernetes.io/openstack-internal-load-balancer", isTrue},
	{"service.beta.kubernetes.io/cce-load-balancer-internal-vpc", isTrue},
}

// unfitSigns ask for what clients or pods of a Service would miss: without it they would not
// understand each other, or talk in the clear.
var unfitSigns = []struct {
	vendorSign
	what string
}{
	{vendorSign{"service.beta.kubernetes.io/aws-load-balancer-ssl-cert", func(value string) bool { return value != "" }}, "TLS"},
	{vendorSign{"service.beta.kubernetes.io/aws-load-balancer-proxy-protocol", func(value string) bool { return value != "" }}, "the PROXY protocol"},
}

// wantsInternal says that a Service is to be reached from within alone.
func wantsInternal(svc *corev1.Service) bool {
	for _, s := range internalSigns {
		if value, ok := svc.Annotations[s.name]; ok && s.says(value) {
			return true
		}
	}
	return false
}

// unfit is what a Service asks of its balancer that the service proxy, which passes on packets as they
// are, cannot do.
func unfit(svc *corev1.Service) *problem {
	for _, s := range unfitSigns {
		if value, ok := svc.Annotations[s.name]; ok && s.says(value) {
			return problemf("Unsupported", "annotation %s asks for %s, which balancers of own machines do not do: leave it to an Ingress or to the pods, and remove the annotation", s.name, s.what)
		}
	}
	return nil
}
