package controller

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/api/apps"
)

func TestCreationStopsWhereItCannotSucceed(t *testing.T) {
	full := errors.New("quota is used up")
	for _, tc := range []struct {
		name        string
		n, fails    int // calls from fails on fail; 0: none
		calls, done int
	}{
		{"all succeed", 10, 0, 10, 10},
		{"the first fails", 1000, 1, 1, 0},
		{"the second batch fails", 1000, 3, 3, 2},
		{"nothing to do", 0, 0, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := 0
			done, err := SlowStart(tc.n, func() error {
				calls++
				if tc.fails > 0 && calls >= tc.fails {
					return full
				}
				return nil
			})
			if calls != tc.calls || done != tc.done || (err != nil) != (tc.fails > 0) {
				t.Errorf("got %d calls, %d done, %v; want %d, %d", calls, done, err, tc.calls, tc.done)
			}
		})
	}
}

func TestPodFromTemplateIsNamedAfterItsOwner(t *testing.T) {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1"}}
	template := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Name: "ignored"}}
	pod := PodFromTemplate(template, rs, apps.ReplicaSets.Def)
	if pod.GenerateName != "web-" || pod.Name != "" || pod.Namespace != "ns" || pod.Labels["app"] != "web" {
		t.Errorf("got %+v", pod.ObjectMeta)
	}
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != "1" || owner.Kind != "ReplicaSet" {
		t.Errorf("got owner %v, want the set", owner)
	}
	pod.Labels["app"] = "changed"
	if template.Labels["app"] != "web" {
		t.Error("the pod shares its labels with the template, which others read")
	}
}

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
