package kubelet

import (
	"fmt"
	"maps"
	"net"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// claim is what a pod takes of its node.
type claim struct {
	qos      v1.PodQOSClass
	requests v1.ResourceList
	ports    []v1.ContainerPort
}

func claimOf(pod *v1.Pod) claim {
	c := claim{qos: core.QOSClass(pod), requests: core.PodRequests(pod)}
	if core.PodConditionTrue(pod, v1.PodResizePending) {
		c.requests = core.PodRequests(asAllocated(pod))
	}
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			for _, p := range list[i].Ports {
				if p.HostPort > 0 {
					c.ports = append(c.ports, p)
				}
			}
		}
	}
	return c
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
	set(pod.Spec.Containers, pod.Status.ContainerStatuses)
	set(pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	return pod
}

// claims is what all pods of the node take together, by pod.
type claims map[types.UID]claim

// admit takes the pod on, or says why the node rejects it: the scheduler may
// have decided on old knowledge.
func (a *Agent) admit(pod *v1.Pod, ours bool) *podstep.Failure {
	if core.PodTerminal(pod) {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c := claimOf(pod)
	if !ours && pod.DeletionTimestamp == nil {
		node, _ := a.nodeCache.Get("", a.o.NodeName)
		if message := evict.Refuse(pod, a.mu.pressure); message != "" {
			return a.rejected(pod, podstep.ReasonEvicted, message)
		}
		if reason, message := a.mu.claims.reject(pod, c, node, a.facts.node.Allocatable); reason != "" {
			return a.rejected(pod, reason, message)
		}
	}
	a.mu.claims[pod.UID] = c
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
	if _, ok := a.mu.claims[uid]; !ok {
		return
	}
	delete(a.mu.claims, uid)
	a.askAgainLocked()
}

// reject returns reason and message if the pod does not fit; node may be nil.
func (cs claims) reject(pod *v1.Pod, c claim, node *v1.Node, allocatable v1.ResourceList) (reason, message string) {
	pods := allocatable[v1.ResourcePods]
	if n := int64(len(cs)); n+1 > pods.Value() {
		return "OutOfpods", fmt.Sprintf("Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", n, pods.Value())
	}
	for _, name := range slices.Sorted(maps.Keys(c.requests)) {
		request, have := c.requests[name], allocatable[name]
		if request.IsZero() {
			continue
		}
		used := cs.used(name)
		left := have.DeepCopy()
		left.Sub(used)
		if left.Cmp(request) < 0 {
			amount := amountOf(name)
			return "OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
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
	for _, other := range cs {
		if portsClash(c.ports, other.ports) {
			return "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
		}
	}
	return "", ""
}

func (cs claims) used(name v1.ResourceName) resource.Quantity {
	var sum resource.Quantity
	for _, c := range cs {
		sum.Add(c.requests[name])
	}
	return sum
}

// amountOf counts a resource as its message does: thousandths of CPUs, else units.
func amountOf(name v1.ResourceName) func(resource.Quantity) int64 {
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
		tolerates := func(tol v1.Toleration) bool {
			return (tol.Effect == "" || tol.Effect == t.Effect) && (tol.Key == "" || tol.Key == t.Key) &&
				(tol.Operator == v1.TolerationOpExists || tol.Value == t.Value)
		}
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
