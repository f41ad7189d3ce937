package cri

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// The kernel's units of CPU.
const (
	minShares    = 2
	maxShares    = 262144
	sharesPerCPU = 1024
	minQuota     = 1000 // microseconds
)

// CPUPeriod is the time in which a limit of CPUs holds, unless people want another.
const CPUPeriod = 100 * time.Millisecond

// Scores by which the kernel chooses what to kill when memory runs out.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
)

// systemCritical is the lowest priority of what the cluster cannot do without.
const systemCritical = 2 * 1000000000

// CPUShares is the weight of so many thousandths of a CPU.
func CPUShares(milli int64) int64 {
	if milli == 0 {
		return minShares
	}
	return min(max(milli*sharesPerCPU/1000, minShares), maxShares)
}

// cpuQuota is the run time within a period, both in microseconds, that so many
// thousandths of a CPU allow; 0 if there is no limit.
func cpuQuota(milli, period int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*period/1000, minQuota)
}

// Resources are the limits that the kernel holds a container to.
func Resources(pod *v1.Pod, c *v1.Container, n *Node) *runtimeapi.LinuxContainerResources {
	out := limits(c.Resources.Requests, ownOrPods(c.Resources.Limits, pod), n)
	out.OomScoreAdj = oomScore(pod, c, n.MemoryCapacity)
	if n.CgroupV2 {
		out.Unified = map[string]string{}
	}
	if n.CgroupV2 && !n.OneProcess {
		out.Unified["memory.oom.group"] = "1"
	}
	if n.LimitSwap { // also without a limit of memory
		out.Unified["memory.swap.max"] = strconv.FormatInt(swap(pod, c, n), 10)
	}
	if n.CgroupV2 {
		request, limit := c.Resources.Requests[v1.ResourceMemory], ownOrPods(c.Resources.Limits, pod)[v1.ResourceMemory]
		n.Memory.protect(out.Unified, core.QOSClass(pod), request.Value())
		most := limit.Value()
		if most == 0 {
			most = n.Allocatable.Memory().Value()
		}
		if request.Cmp(limit) != 0 {
			n.Memory.throttle(out.Unified, request.Value(), most)
		}
	}
	return out
}

// protect keeps a request of memory for a pod of a class, or a container of one.
func (m *MemoryQoS) protect(unified map[string]string, qos v1.PodQOSClass, request int64) {
	if !m.Tiered || request == 0 {
		return
	}
	switch qos {
	case v1.PodQOSGuaranteed:
		unified["memory.min"] = strconv.FormatInt(request, 10)
	case v1.PodQOSBurstable:
		unified["memory.low"] = strconv.FormatInt(request, 10)
	}
}

// throttle slows down what has gone a part of the way from its request to the most that it may have.
func (m *MemoryQoS) throttle(unified map[string]string, request, most int64) {
	if m.Throttle == 0 || most == 0 {
		return
	}
	page := int64(os.Getpagesize())
	if high := int64(float64(request)+float64(most-request)*m.Throttle) / page * page; high > request {
		unified["memory.high"] = strconv.FormatInt(high, 10)
	}
}

// swap is how much a container may swap: only one that is burstable itself, and not vital.
func swap(pod *v1.Pod, c *v1.Container, n *Node) int64 {
	request, limit := c.Resources.Requests[v1.ResourceMemory], c.Resources.Limits[v1.ResourceMemory]
	vital := pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
	if n.Swap == 0 || n.MemoryCapacity == 0 || vital || core.QOSClass(pod) != v1.PodQOSBurstable || request.IsZero() || request.Cmp(limit) == 0 {
		return 0
	}
	return int64(float64(request.Value()) / float64(n.MemoryCapacity) * float64(n.Swap))
}

// ownOrPods are a container's limits of CPU, memory and huge pages, or, where it has none, those of the pod as a whole.
func ownOrPods(own v1.ResourceList, pod *v1.Pod) v1.ResourceList {
	if pod.Spec.Resources == nil {
		return own
	}
	out := own.DeepCopy()
	for name, q := range pod.Spec.Resources.Limits {
		held := name == v1.ResourceCPU || name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
		if held && isZero(own[name]) {
			if out == nil {
				out = v1.ResourceList{}
			}
			out[name] = q
		}
	}
	return out
}

func limits(requests, limits v1.ResourceList, n *Node) *runtimeapi.LinuxContainerResources {
	cpu, ok := requests[v1.ResourceCPU]
	if !ok {
		cpu = limits[v1.ResourceCPU]
	}
	cpuLimit, memory := limits[v1.ResourceCPU], limits[v1.ResourceMemory]
	if n.NoCPULimits {
		cpuLimit = resource.Quantity{}
	}
	period := cmp.Or(n.CPUPeriod, CPUPeriod).Microseconds()
	out := &runtimeapi.LinuxContainerResources{
		CpuShares:          CPUShares(cpu.MilliValue()),
		CpuPeriod:          period,
		CpuQuota:           cpuQuota(cpuLimit.MilliValue(), period),
		MemoryLimitInBytes: memory.Value(),
	}
	for _, size := range n.HugePageSizes {
		q := limits[v1.ResourceName(v1.ResourceHugePagesPrefix+size)]
		out.HugepageLimits = append(out.HugepageLimits, &runtimeapi.HugepageLimit{
			PageSize: kernelPageSize(size), Limit: uint64(q.Value()),
		})
	}
	return out
}

// kernelPageSize turns "2Mi" into the kernel's "2MB".
func kernelPageSize(size string) string { return strings.TrimSuffix(size, "i") + "B" }

// podResources are what the pod's own cgroup is held to: nil values of limits
// mean that some container has none.
func podResources(pod *v1.Pod, n *Node) *runtimeapi.LinuxContainerResources {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	max := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if !allLimited(pod, name) {
			delete(max, name)
		}
	}
	out := limits(requests, max, n)
	if !n.CgroupV2 || !n.Memory.Tiered && n.Memory.Throttle == 0 {
		return out
	}
	out.Unified = map[string]string{}
	n.Memory.protect(out.Unified, core.QOSClass(pod), requests.Memory().Value())
	if r := pod.Spec.Resources; r != nil && !isZero(r.Limits[v1.ResourceMemory]) && r.Requests.Memory().Cmp(*r.Limits.Memory()) != 0 {
		n.Memory.throttle(out.Unified, r.Requests.Memory().Value(), r.Limits.Memory().Value())
	}
	return out
}

// PodCgroup is what the pod's own cgroup is held to.
func PodCgroup(pod *v1.Pod, n *Node) *runtimeapi.LinuxContainerResources { return podResources(pod, n) }

func allLimited(pod *v1.Pod, name v1.ResourceName) bool {
	if r := pod.Spec.Resources; r != nil && !isZero(r.Limits[name]) {
		return true
	}
	unlimited := func(c v1.Container) bool { return isZero(c.Resources.Limits[name]) }
	return !slices.ContainsFunc(pod.Spec.Containers, unlimited) && !slices.ContainsFunc(pod.Spec.InitContainers, unlimited)
}

func isZero(q resource.Quantity) bool { return q.IsZero() }

// oomScore says how readily the kernel should kill the container: the larger
// the share of memory it asked for, the later.
func oomScore(pod *v1.Pod, c *v1.Container, capacity int64) int64 {
	if pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical {
		return oomGuaranteed
	}
	switch core.QOSClass(pod) {
	case v1.PodQOSGuaranteed:
		return oomGuaranteed
	case v1.PodQOSBestEffort:
		return oomBestEffort
	}
	if capacity == 0 {
		return oomBestEffort - 1
	}
	rest := restOfPod(pod)
	score := func(c *v1.Container) int64 {
		q := c.Resources.Requests[v1.ResourceMemory]
		return 1000 - 1000*(q.Value()+rest)/capacity
	}
	adj := score(c)
	if core.IsSidecar(c) { // not before what it serves
		for i := range pod.Spec.Containers {
			adj = min(adj, score(&pod.Spec.Containers[i]))
		}
	}
	return min(max(adj, 1000+oomGuaranteed), oomBestEffort-1)
}

// restOfPod is what each container has of the memory that the pod asks for as a whole, and no container by itself.
func restOfPod(pod *v1.Pod) int64 {
	if pod.Spec.Resources == nil {
		return 0
	}
	whole := pod.Spec.Resources.Requests[v1.ResourceMemory]
	own := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceMemory]
	containers := int64(len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		if core.IsSidecar(&pod.Spec.InitContainers[i]) {
			containers++
		}
	}
	return max(whole.Value()-own.Value(), 0) / max(containers, 1)
}
