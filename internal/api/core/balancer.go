package core

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FinalizerBalancer keeps a Service until its balancer is gone.
const FinalizerBalancer = "service.kubernetes.io/load-balancer-cleanup"

// ConditionBalanced is of a Service whose balancer is the cluster's own: whether it has addresses,
// and why it has not, or not all.
const ConditionBalanced = "kemudi.io/Balanced"

// ConditionAnnounced is of a Service with addresses of a pool: which nodes answer for them.
const ConditionAnnounced = "kemudi.io/Announced"

// ServiceBalanced returns that condition of a Service, or nil: somebody else balances it.
func ServiceBalanced(svc *corev1.Service) *metav1.Condition {
	return meta.FindStatusCondition(svc.Status.Conditions, ConditionBalanced)
}

// TaintLeaving is the key of the taint, upstream's, of nodes that an autoscaler is about to take away. Its
// value is since when, in seconds.
const TaintLeaving = "ToBeDeletedByClusterAutoscaler"

// NodeLeaves says that a node is about to go.
func NodeLeaves(n *corev1.Node) bool {
	return n.DeletionTimestamp != nil || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == TaintLeaving })
}

// BalancersServe says that balancers may lead to a node. Whether it is ready is another matter.
func BalancersServe(n *corev1.Node) bool { return !NodeLeaves(n) && BalancersInclude(n) }

// BalancersInclude says that people have not taken a node out of balancers.
func BalancersInclude(n *corev1.Node) bool {
	value, ok := n.Labels[corev1.LabelNodeExcludeBalancers]
	if !ok {
		return true
	}
	out, err := strconv.ParseBool(value)
	return err == nil && !out
}
