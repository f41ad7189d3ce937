package kubelet

import (
	"maps"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/admit"
	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
)

// gate is where pods are taken on or rejected.
type gate struct {
	*container.Runner
	sysctls *admit.Sysctls
	watch   *runtime.Watch
	// appArmor says that the machine can confine containers by it.
	appArmor bool
	// end ends a pod that has to go for another one.
	end       func(types.UID, podstep.Eviction)
	preempted *prometheus.CounterVec
}

// admit takes the pod on, or says why the node rejects it: the scheduler may
// have decided on old knowledge.
func (g *gate) admit(pod *v1.Pod, ours bool) *podstep.Failure {
	if core.PodTerminal(pod) {
		return nil
	}
	refuse := g.refuse(pod)
	if ours || pod.DeletionTimestamp != nil {
		refuse = nil
	}
	reason, message := g.Ledger.Take(pod, refuse)
	if short, ok := strings.CutPrefix(reason, admit.OutOf); reason == "" || ok && g.preempt(pod, short) {
		return nil
	}
	return g.rejected(pod, reason, message)
}

// preempt has others make room for a pod that the cluster cannot do without; short is what there is too little of.
func (g *gate) preempt(pod *v1.Pod, short string) bool {
	if !evict.Critical(pod) {
		return false
	}
	victims := g.Ledger.Preempt(pod, g.refuse(pod))
	for _, uid := range victims {
		g.preempted.WithLabelValues(short).Inc()
		g.end(uid, podstep.Eviction{
			Reason: podstep.ReasonPreempting, Message: "Preempted in order to admit critical pod",
			Condition: "Pod was preempted by Kubelet to accommodate a critical pod.",
		})
	}
	return len(victims) > 0
}

// refuse returns what decides whether the node rejects the pod.
func (g *gate) refuse(pod *v1.Pod) func(admit.Allocations, admit.Allocation) (reason, message string) {
	return func(others admit.Allocations, own admit.Allocation) (reason, message string) {
		if g.Node.GoingDown() {
			return "NodeShutdown", "Pod was rejected as the node is shutting down."
		}
		node, _ := g.Node.Seen()
		if message := evict.Refuse(pod, g.Node.Pressure()); message != "" {
			return podstep.ReasonEvicted, message
		}
		if reason, message = g.sysctls.Refuse(pod); reason != "" {
			return reason, message
		}
		if reason, message = admit.OtherSystem(pod); reason != "" {
			return reason, message
		}
		if reason, message = admit.AppArmor(pod, g.appArmor); reason != "" {
			return reason, message
		}
		if reason, message = admit.Groups(pod, g.watch.Identity.StrictGroups); reason != "" {
			return reason, message
		}
		allocatable := g.Facts.Allocatable
		if node != nil {
			allocatable = g.Node.Allocatable(g.Node.Capacity(node.Status.Capacity))
			maps.DeleteFunc(allocatable, func(name v1.ResourceName, _ resource.Quantity) bool { return g.Devices.Manages(name) }) // which has been or will be asked
		}
		return others.Reject(pod, own, node, allocatable)
	}
}

func (g *gate) rejected(pod *v1.Pod, reason, message string) *podstep.Failure {
	g.About(pod, "").Event(v1.EventTypeWarning, reason, message)
	return &podstep.Failure{Reason: reason, Message: "Pod was rejected: " + message}
}
