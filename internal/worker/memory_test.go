package worker

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestANodeThatIsWellIsNotWorthAWrite(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.0.0/24"}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		change(n)
		return n
	}
	was := node(func(*corev1.Node) {})
	for name, c := range map[string]struct {
		is   *corev1.Node
		want bool
	}{
		"a heartbeat": {node(func(n *corev1.Node) {
			n.ResourceVersion, n.Status.Conditions[0].LastHeartbeatTime = "2", metav1.NewTime(time.Unix(1, 0))
		}), false},
		"images":      {node(func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}} }), false},
		"not ready":   {node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }), true},
		"an address":  {node(func(n *corev1.Node) { n.Status.Addresses = []corev1.NodeAddress{{Address: "10.0.0.1"}} }), true},
		"a label":     {node(func(n *corev1.Node) { n.Labels = map[string]string{"zone": "a"} }), true},
		"its pods":    {node(func(n *corev1.Node) { n.Spec.PodCIDRs = nil }), true},
		"another one": {node(func(n *corev1.Node) { n.UID = "2" }), true},
	} {
		if got := lasting(was, c.is); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
	pod := &corev1.Pod{}
	pod.ResourceVersion = "1"
	if !lasting(pod, &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.42.0.2"}}) {
		t.Error("a change of a pod is not worth a write")
	}
	if lasting(pod, &corev1.Pod{}) {
		t.Error("a change of a pod of which nothing is kept is worth a write")
	}
}
