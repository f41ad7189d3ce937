package endpoint

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestTargetPortIsFoundByNumberOrName(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}, {Name: "web", ContainerPort: 8081, Protocol: corev1.ProtocolUDP}}},
		},
		InitContainers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{Name: "setup", ContainerPort: 1, Protocol: corev1.ProtocolTCP}}},
			{Ports: []corev1.ContainerPort{{Name: "proxy", ContainerPort: 15001, Protocol: corev1.ProtocolTCP}}, RestartPolicy: &always},
		},
	}}
	for _, tc := range []struct {
		target   intstr.IntOrString
		protocol corev1.Protocol
		want     int32
		ok       bool
	}{
		{intstr.FromInt32(9999), corev1.ProtocolTCP, 9999, true},
		{intstr.FromString("web"), corev1.ProtocolTCP, 8080, true},
		{intstr.FromString("web"), corev1.ProtocolUDP, 8081, true},
		{intstr.FromString("proxy"), corev1.ProtocolTCP, 15001, true}, // of a sidecar
		{intstr.FromString("setup"), corev1.ProtocolTCP, 0, false},    // that container is over
		{intstr.FromString("web"), corev1.ProtocolSCTP, 0, false},
	} {
		got, ok := TargetPort(pod, &corev1.ServicePort{TargetPort: tc.target, Protocol: tc.protocol})
		if got != tc.want || ok != tc.ok {
			t.Errorf("%s/%s: got %d %v, want %d %v", tc.target.String(), tc.protocol, got, ok, tc.want, tc.ok)
		}
	}
}
