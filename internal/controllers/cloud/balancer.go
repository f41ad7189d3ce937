package cloud

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// cleanupFinalizer keeps a service until its balancer is gone.
const cleanupFinalizer = "service.kubernetes.io/load-balancer-cleanup"

// autoscalerTaint is on nodes that an autoscaler of nodes is about to remove.
const autoscalerTaint = "ToBeDeletedByClusterAutoscaler"

// wants says that a service is to have a balancer of the cloud: one with a class is somebody
// else's.
func wants(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil
}

// leaves says that a service has had a balancer, and is to have none any more.
func leaves(svc *corev1.Service) bool {
	return slices.Contains(svc.Finalizers, cleanupFinalizer) && (svc.DeletionTimestamp != nil || svc.Spec.Type != corev1.ServiceTypeLoadBalancer)
}

// sameBalancer says that a change of a service is none of its balancer.
func sameBalancer(a, b *corev1.Service) bool {
	x, y := &a.Spec, &b.Spec
	return a.UID == b.UID && wants(a) == wants(b) && maps.Equal(a.Annotations, b.Annotations) &&
		slices.EqualFunc(x.Ports, y.Ports, samePort) &&
		slices.Equal(x.LoadBalancerSourceRanges, y.LoadBalancerSourceRanges) && x.LoadBalancerIP == y.LoadBalancerIP &&
		slices.Equal(x.ExternalIPs, y.ExternalIPs) && len(x.IPFamilies) == len(y.IPFamilies) &&
		x.SessionAffinity == y.SessionAffinity && equality.Semantic.DeepEqual(x.SessionAffinityConfig, y.SessionAffinityConfig) &&
		x.ExternalTrafficPolicy == y.ExternalTrafficPolicy && x.HealthCheckNodePort == y.HealthCheckNodePort
}

func samePort(a, b corev1.ServicePort) bool {
	return a.Name == b.Name && a.Protocol == b.Protocol && a.Port == b.Port && a.NodePort == b.NodePort && a.TargetPort == b.TargetPort &&
		ptr.Equal(a.AppProtocol, b.AppProtocol)
}

// sameIngress says that two states of a balancer are one; what is not said of an address is as
// the API understands it.
func sameIngress(a, b []corev1.LoadBalancerIngress) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.LoadBalancerIngress) bool {
		return x.IP == y.IP && x.Hostname == y.Hostname && modeOf(x) == modeOf(y) && equality.Semantic.DeepEqual(x.Ports, y.Ports)
	})
}

func modeOf(in corev1.LoadBalancerIngress) corev1.LoadBalancerIPMode {
	if in.IP == "" {
		return ""
	}
	return ptr.Deref(in.IPMode, corev1.LoadBalancerIPModeVIP)
}

// serves says that balancers may lead to a node. Whether it is ready is for their own checks
// to find out.
func serves(node *corev1.Node) bool {
	return node.DeletionTimestamp == nil && included(node) && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint })
}

// included says that people have not taken a node out.
func included(node *corev1.Node) bool {
	value, ok := node.Labels[corev1.LabelNodeExcludeBalancers]
	if !ok {
		return true
	}
	out, err := strconv.ParseBool(value)
	return err == nil && !out
}

// serving are those of the nodes that balancers may lead to, by name.
func serving(all []*corev1.Node) []*corev1.Node {
	out := slices.DeleteFunc(slices.Clone(all), func(n *corev1.Node) bool { return !serves(n) })
	slices.SortFunc(out, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// machine is what of a node matters to a balancer.
type machine struct{ name, id string }

func machinesOf(nodes []*corev1.Node) (out []machine) {
	for _, n := range nodes {
		out = append(out, machine{n.Name, n.Spec.ProviderID})
	}
	return out
}

// shown is how many nodes an event names.
const shown = 20

// shortNames are the names of nodes for an event.
func shortNames(nodes []*corev1.Node) (out []string) {
	for _, n := range nodes[:min(shown, len(nodes))] {
		out = append(out, n.Name)
	}
	if more := len(nodes) - shown; more > 0 {
		out = append(out, fmt.Sprintf("<%d more>", more))
	}
	return out
}
