package workload

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/apps"
)

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
