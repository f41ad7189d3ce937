package usage

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// services take node ports and load balancers by what they ask for: the ports
// are given to them later.
var services = rules{
	alias:  corev1.ResourceServices,
	counts: func(name corev1.ResourceName) bool { return slices.Contains(ofServices, name) },
	amounts: func(obj resource.Object, _ World) corev1.ResourceList {
		return serviceAmounts(&obj.(*corev1.Service).Spec)
	},
	same: func(before, after resource.Object) bool {
		return SameAmounts(serviceAmounts(&before.(*corev1.Service).Spec), serviceAmounts(&after.(*corev1.Service).Spec))
	},
	updates: []string{""},
}

var ofServices = []corev1.ResourceName{corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers}

func serviceAmounts(s *corev1.ServiceSpec) corev1.ResourceList {
	ports, balancers := 0, 0
	switch s.Type {
	case corev1.ServiceTypeNodePort:
		ports = len(s.Ports)
	case corev1.ServiceTypeLoadBalancer:
		balancers, ports = 1, len(s.Ports)
		if !ptr.Deref(s.AllocateLoadBalancerNodePorts, true) {
			ports = 0
			for i := range s.Ports {
				if s.Ports[i].NodePort != 0 {
					ports++
				}
			}
		}
	}
	return corev1.ResourceList{
		corev1.ResourceServicesNodePorts:     *quantity.NewQuantity(int64(ports), quantity.DecimalSI),
		corev1.ResourceServicesLoadBalancers: *quantity.NewQuantity(int64(balancers), quantity.DecimalSI),
	}
}
