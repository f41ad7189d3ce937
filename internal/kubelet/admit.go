package kubelet

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/admit"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// admit takes the pod on, or says why the node rejects it: the scheduler may
// have decided on old knowledge.
func (a *Agent) admit(pod *v1.Pod, ours bool) *podstep.Failure {
	if core.PodTerminal(pod) {
		return nil
	}
	refuse := a.refuse(pod)
	if ours || pod.DeletionTimestamp != nil {
		refuse = nil
	}
	if reason, message := a.ledger.Take(pod, refuse); reason != "" {
		return a.rejected(pod, reason, message)
	}
	return nil
}

// refuse returns what decides whether the node rejects the pod.
func (a *Agent) refuse(pod *v1.Pod) func(admit.Allocations, admit.Allocation) (reason, message string) {
	return func(others admit.Allocations, own admit.Allocation) (reason, message string) {
		node, _ := a.node.Seen()
		if message := evict.Refuse(pod, a.node.Pressure()); message != "" {
			return podstep.ReasonEvicted, message
		}
		if reason, message = a.facts.sysctls.Refuse(pod); reason != "" {
			return reason, message
		}
		if reason, message = admit.OtherSystem(pod); reason != "" {
			return reason, message
		}
		if reason, message = admit.Groups(pod, a.facts.runtime.StrictGroups); reason != "" {
			return reason, message
		}
		allocatable := a.facts.node.Allocatable
		if node != nil {
			allocatable = a.node.Allocatable(a.node.Capacity(node.Status.Capacity))
		}
		return others.Reject(pod, own, node, allocatable)
	}
}

func (a *Agent) rejected(pod *v1.Pod, reason, message string) *podstep.Failure {
	message = "Pod was rejected: " + message
	a.runner.About(pod, "").Event(v1.EventTypeWarning, reason, message)
	return &podstep.Failure{Reason: reason, Message: message}
}
