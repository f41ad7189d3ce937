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

// wantsInternal says that a Service is to be reached from within alone.
func wantsInternal(svc *corev1.Service) bool {
	for _, s := range internalSigns {
		if value, ok := svc.Annotations[s.name]; ok && s.says(value) {
			return true
		}
	}
	return false
}
