package worker

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNodesAreReachedAsBeforeByWhatIsKeptOfThem compares what the pod network is told of a
// whole Node, and of what a machine keeps of it.
func TestNodesAreReachedAsBeforeByWhatIsKeptOfThem(t *testing.T) {
	t.Parallel()
	node := func(name string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, ResourceVersion: "7", Labels: map[string]string{"rack": "7"}, Annotations: map[string]string{"note": "long"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
			},
			Spec: corev1.NodeSpec{PodCIDR: "10.42.1.0/24", PodCIDRs: []string{"10.42.1.0/24", "fd00:42:1::/64"}},
			Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}, {Type: corev1.NodeExternalIP, Address: "198.51.100.7"}},
				Images:    []corev1.ContainerImage{{Names: []string{"web:1"}}},
			},
		}
	}
	behind := node("behind")
	behind.Annotations[AnnotationVXLANAddress] = "203.0.113.9"
	away := node("away")
	away.Status.Addresses = away.Status.Addresses[1:]
	trim := Trim("own")
	for _, whole := range []*corev1.Node{node("plain"), behind, away} {
		kept := whole.DeepCopy()
		trim(kept)
		was, had := peerOf(whole, nil)
		is, has := peerOf(kept, nil)
		if !had || !has || !was.Equal(is) {
			t.Errorf("%s: got %+v, %t, want %+v, %t", whole.Name, is, has, was, had)
		}
		if kept.Name != whole.Name || kept.ResourceVersion != "7" || len(kept.Labels)+len(kept.Status.Images)+len(kept.ManagedFields) > 0 {
			t.Errorf("%s: got %+v", whole.Name, kept)
		}
	}
	own := node("own")
	if trim(own); len(own.Labels) != 1 || len(own.Status.Images) != 1 || len(own.ManagedFields) != 1 {
		t.Errorf("the machine's own: got %+v, want all of it", own)
	}
	pod, service := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "own"}}, &corev1.Service{}
	for _, o := range []metav1.Object{pod, service} {
		o.SetManagedFields(own.ManagedFields)
	}
	trim(pod)
	if trim(service); len(pod.ManagedFields) != 1 || len(service.ManagedFields) != 0 {
		t.Errorf("got managed fields %v of a pod, %v of a service", pod.ManagedFields, service.ManagedFields)
	}
}

func TestOfPodsOfOtherNodesOnlyWhatPoliciesLookAtIsKept(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "long"}},
		Spec: corev1.PodSpec{NodeName: "other", ServiceAccountName: "x", Containers: []corev1.Container{{
			Name: "c", Image: "web:1", Env: []corev1.EnvVar{{Name: "KEY", Value: "secret"}}, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.42.1.2", Message: "long"},
	}
	Trim("own")(pod)
	c := pod.Spec.Containers[0]
	if pod.Labels["app"] != "web" || pod.Status.PodIP != "10.42.1.2" || len(c.Ports) != 1 {
		t.Errorf("got %+v, want labels, addresses and ports", pod)
	}
	if len(pod.Annotations)+len(c.Env) > 0 || c.Image+pod.Spec.ServiceAccountName+pod.Status.Message != "" {
		t.Errorf("got %+v, want nothing else of it", pod)
	}
}
