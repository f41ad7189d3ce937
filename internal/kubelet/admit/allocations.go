package admit

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
)

// Allocation is what a pod takes of its node.
type Allocation struct {
	QOS      v1.PodQOSClass
	Requests v1.ResourceList
	Ports    []v1.ContainerPort // those of the node

	Priority int32
	Created  time.Time
	Critical bool // the cluster cannot do without it
}

// AllocationOf is what the pod asks for; while a resize is pending, what it has got.
func AllocationOf(pod *v1.Pod) Allocation {
	a := Allocation{
		QOS: core.QOSClass(pod), Requests: core.PodRequests(pod),
		Priority: ptr.Deref(pod.Spec.Priority, 0), Created: pod.CreationTimestamp.Time, Critical: evict.Critical(pod),
	}
	if core.PodConditionTrue(pod, v1.PodResizePending) {
		a.Requests = core.PodRequests(asAllocated(pod))
	}
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			for _, p := range list[i].Ports {
				if p.HostPort > 0 {
					a.Ports = append(a.Ports, p)
				}
			}
		}
	}
	return a
}

// asAllocated is a pod that asks for what its containers have got.
func asAllocated(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	set := func(list []v1.Container, got []v1.ContainerStatus) {
		for i := range list {
			for j := range got {
				if got[j].Name == list[i].Name && got[j].AllocatedResources != nil {
					list[i].Resources.Requests = got[j].AllocatedResources
				}
			}
		}
	}
	if pod.Spec.Resources != nil && pod.Status.AllocatedResources != nil {
		pod.Spec.Resources.Requests = pod.Status.AllocatedResources
	}
	set(pod.Spec.Containers, pod.Status.ContainerStatuses)
	set(pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	return pod
}

// Allocations is what all pods of the node take together, by pod.
type Allocations map[types.UID]Allocation

// OutOf begins the reasons that say what there is too little of.
const OutOf = "OutOf"

// Reject returns reason and message if the pod does not fit; node may be nil.
func (as Allocations) Reject(pod *v1.Pod, a Allocation, node *v1.Node, allocatable v1.ResourceList) (reason, message string) {
	pods := allocatable[v1.ResourcePods]
	if n := int64(len(as)); n+1 > pods.Value() {
		return OutOf + "pods", fmt.Sprintf("Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", n, pods.Value())
	}
	for _, name := range slices.Sorted(maps.Keys(a.Requests)) {
		request := a.Requests[name]
		have, known := allocatable[name]
		if request.IsZero() || !known && check.IsExtendedResource(name) {
			continue // what no node knows of is counted elsewhere
		}
		used := as.Used(name)
		left := have.DeepCopy()
		left.Sub(used)
		if left.Cmp(request) < 0 {
			amount := Amount(name)
			return OutOf + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
				name, amount(request), amount(used), amount(have))
		}
	}
	if node != nil {
		if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
			return "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
		}
		if taint := untolerated(pod, node); taint != nil {
			return "TaintToleration", fmt.Sprintf("Predicate TaintToleration failed: node(s) had taint {%s: %s}, that the pod didn't tolerate", taint.Key, taint.Value)
		}
	}
	for _, other := range as {
		if portsClash(a.Ports, other.Ports) {
			return "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
		}
	}
	return "", ""
}

// Used is what the pods have of a resource.
func (as Allocations) Used(name v1.ResourceName) resource.Quantity {
	var sum resource.Quantity
	for _, a := range as {
		sum.Add(a.Requests[name])
	}
	return sum
}

// Amount counts a resource as its message does: thousandths of CPUs, else units.
func Amount(name v1.ResourceName) func(resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return func(q resource.Quantity) int64 { return q.MilliValue() }
	}
	return func(q resource.Quantity) int64 { return q.Value() }
}

// untolerated returns a taint of the node that does not even let the pod run on.
func untolerated(pod *v1.Pod, node *v1.Node) *v1.Taint {
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Effect != v1.TaintEffectNoExecute {
			continue
		}
		tolerates := func(tol v1.Toleration) bool { return tol.ToleratesTaint(klog.Logger{}, t, true) }
		if !slices.ContainsFunc(pod.Spec.Tolerations, tolerates) {
			return t
		}
	}
	return nil
}

func portsClash(a, b []v1.ContainerPort) bool {
	any := func(ip string) bool { p := net.ParseIP(ip); return p == nil || p.IsUnspecified() }
	for _, x := range a {
		for _, y := range b {
			if x.HostPort == y.HostPort && x.Protocol == y.Protocol && (x.HostIP == y.HostIP || any(x.HostIP) || any(y.HostIP)) {
				return true
			}
		}
	}
	return false
}
