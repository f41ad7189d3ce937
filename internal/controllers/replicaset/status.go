package replicaset

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
)

// newStatus is what the set reports: pods are all pods that the set controls, active
// the unfinished pods after scaling.
func newStatus(rs *appsv1.ReplicaSet, pods, active []*corev1.Pod, failed failure) appsv1.ReplicaSetStatus {
	s := appsv1.ReplicaSetStatus{
		ObservedGeneration: rs.Generation,
		Replicas:           int32(len(active)),
		Conditions:         conditions(rs, failed),
	}
	template := labels.SelectorFromSet(rs.Spec.Template.Labels)
	now := time.Now()
	for _, p := range active {
		if template.Matches(labels.Set(p.Labels)) {
			s.FullyLabeledReplicas++
		}
		if core.PodReady(p) {
			s.ReadyReplicas++
		}
		if core.PodAvailable(p, rs.Spec.MinReadySeconds, now) {
			s.AvailableReplicas++
		}
	}
	var terminating int32
	for _, p := range pods {
		if p.DeletionTimestamp != nil && !core.PodTerminal(p) {
			terminating++
		}
	}
	s.TerminatingReplicas = ptr.To(terminating)
	return s
}

// conditions sets or clears ReplicaFailure and leaves others alone.
func conditions(rs *appsv1.ReplicaSet, failed failure) []appsv1.ReplicaSetCondition {
	var kept []appsv1.ReplicaSetCondition
	for _, c := range rs.Status.Conditions {
		if c.Type != appsv1.ReplicaSetReplicaFailure {
			kept = append(kept, c)
		} else if failed.tell() && c.Status == corev1.ConditionTrue && c.Reason == failed.reason {
			return rs.Status.Conditions // it stands already; the time of its beginning stays
		}
	}
	if !failed.tell() {
		return kept
	}
	return append(kept, appsv1.ReplicaSetCondition{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.Now().Rfc3339Copy(), Reason: failed.reason, Message: failed.err.Error(),
	})
}
