package kubelet

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	a.mu.Lock()
	defer a.mu.Unlock()
	c := admit.AllocationOf(pod)
	if !ours && pod.DeletionTimestamp == nil {
		node, _ := a.node.Seen()
		if message := evict.Refuse(pod, a.node.Pressure()); message != "" {
			return a.rejected(pod, podstep.ReasonEvicted, message)
		}
		if reason, message := a.facts.sysctls.Refuse(pod); reason != "" {
			return a.rejected(pod, reason, message)
		}
		if reason, message := admit.OtherSystem(pod); reason != "" {
			return a.rejected(pod, reason, message)
		}
		if reason, message := admit.Groups(pod, a.facts.runtime.StrictGroups); reason != "" {
			return a.rejected(pod, reason, message)
		}
		allocatable := a.facts.node.Allocatable
		if node != nil {
			allocatable = a.node.Allocatable(a.node.Capacity(node.Status.Capacity))
		}
		if reason, message := a.mu.allocations.Reject(pod, c, node, allocatable); reason != "" {
			return a.rejected(pod, reason, message)
		}
	}
	a.mu.allocations[pod.UID] = c
	return nil
}

func (a *Agent) rejected(pod *v1.Pod, reason, message string) *podstep.Failure {
	message = "Pod was rejected: " + message
	a.about(pod, "").event(v1.EventTypeWarning, reason, message)
	return &podstep.Failure{Reason: reason, Message: message}
}

// release gives back what a finished pod took.
func (a *Agent) release(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leftLocked(uid)
	if _, ok := a.mu.allocations[uid]; !ok {
		return
	}
	delete(a.mu.allocations, uid)
	a.askAgainLocked()
}

// burstable is what the burstable pods ask for together, in thousandths of a CPU.
func (a *Agent) burstable() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := int64(0)
	for _, c := range a.mu.allocations {
		if c.QOS == v1.PodQOSBurstable {
			cpu := c.Requests[v1.ResourceCPU]
			sum += cpu.MilliValue()
		}
	}
	return sum
}
