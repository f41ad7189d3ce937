package worker

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/resource"
)

// Trim takes off an object of the API what a machine that runs pods has no use for, since each
// machine keeps all of these objects:
//
//   - other nodes: all but how their pods are reached;
//   - pods of other nodes, which it has while there are network policies: all but what policies look at;
//   - whatever it does not write itself: the managed fields.
func Trim(nodeName string) func(resource.Object) {
	return func(obj resource.Object) {
		switch o := obj.(type) {
		case *corev1.Pod:
			if o.Spec.NodeName != nodeName { // of its own it writes the status
				*o = *asPeerPod(o)
			}
		case *corev1.Node:
			if o.Name != nodeName {
				*o = *asPeer(o)
			}
		default:
			o.SetManagedFields(nil)
		}
	}
}

// asPeer is all of a node that its peers look at.
func asPeer(n *corev1.Node) *corev1.Node {
	p := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, DeletionTimestamp: n.DeletionTimestamp},
		Spec:       corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs},
		Status:     corev1.NodeStatus{Addresses: n.Status.Addresses},
	}
	if at, ok := n.Annotations[AnnotationVXLANAddress]; ok {
		p.Annotations = map[string]string{AnnotationVXLANAddress: at}
	}
	return p
}

// asPeerPod is all of a pod that network policies look at.
func asPeerPod(p *corev1.Pod) *corev1.Pod {
	ports := func(list []corev1.Container) (kept []corev1.Container) {
		for i := range list {
			kept = append(kept, corev1.Container{Name: list[i].Name, Ports: list[i].Ports, RestartPolicy: list[i].RestartPolicy})
		}
		return kept
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{
			NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork,
			Containers: ports(p.Spec.Containers), InitContainers: ports(p.Spec.InitContainers),
		},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs},
	}
}
