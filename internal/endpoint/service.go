package endpoint

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
)

// Services declares which pods services select.
var Services = controller.NewSelection(core.Services, func(svc *corev1.Service) labels.Selector {
	if len(svc.Spec.Selector) == 0 {
		return nil
	}
	return labels.SelectorFromSet(svc.Spec.Selector)
})

// Selecting is an input of controllers of services: a pod wakes the services
// that select it.
var Selecting = Services.Selected(core.Pods.Def)

// Possible says whether a pod can be an endpoint of a service at all: it has an
// address and has not finished.
func Possible(pod *corev1.Pod) bool {
	return (len(pod.Status.PodIPs) > 0 || pod.Status.PodIP != "") && !core.PodTerminal(pod)
}

// TargetPort is the port of the pod that a service port leads to; ok is false
// if the pod has no port of that name.
func TargetPort(pod *corev1.Pod, port *corev1.ServicePort) (_ int32, ok bool) {
	if port.TargetPort.Type == intstr.Int {
		return port.TargetPort.IntVal, true
	}
	find := func(containers []corev1.Container) (int32, bool) {
		for i := range containers {
			for _, p := range containers[i].Ports {
				if p.Name == port.TargetPort.StrVal && p.Protocol == port.Protocol {
					return p.ContainerPort, true
				}
			}
		}
		return 0, false
	}
	if n, ok := find(pod.Spec.Containers); ok {
		return n, true
	}
	var sidecars []corev1.Container
	for i := range pod.Spec.InitContainers {
		if core.IsSidecar(&pod.Spec.InitContainers[i]) {
			sidecars = append(sidecars, pod.Spec.InitContainers[i])
		}
	}
	return find(sidecars)
}
