package cri

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Node is what there is to know about the node when a pod is translated.
type Node struct {
	Name string
	IPs  []string // the primary one first

	Allocatable    v1.ResourceList // default of limits in resourceFieldRef
	MemoryCapacity int64           // bytes, for OOM scores
	HugePageSizes  []string        // "2Mi", as in resource names

	ClusterDNS    []string
	ClusterDomain string
	HostDNS       Resolv // the node's own /etc/resolv.conf
	HostHosts     string // content of the node's own /etc/hosts

	CgroupParent string // cgroup that holds "kubepods"; empty: the runtime chooses
	CgroupV2     bool
	LimitSwap    bool // the kernel can keep containers from swapping: version 2 only

	Memory MemoryQoS

	Swap int64 // bytes that burstable containers may share, each as much of it as it asks for of the memory; 0: none swaps

	NoCPULimits    bool          // limits of CPUs are not enforced
	CPUPeriod      time.Duration // in which a limit of CPUs holds; 0: [CPUPeriod]
	OneProcess     bool          // the kernel ends single processes for want of memory
	PodProcesses   int64         // that a pod may have; not more than 0: any number
	SeccompDefault bool          // containers that ask for no profile get the runtime's

	Sysctls map[string]string // of pods that say nothing else, in their own namespaces

	Masked []string // paths of /sys that there are on this machine, and that containers do not see with the default procMount

	PodLogsDir string // /var/log/pods
	SeccompDir string // holds localhost seccomp profiles

	SandboxSeccomp string // file of the seccomp profile of sandboxes; empty: the runtime's default
}

// MemoryQoS is what the kernel does for the memory of pods beside holding them to their limits: under version 2 of cgroups alone.
type MemoryQoS struct {
	// Throttle is from where on a container that may have more than it asks for is slowed down: that part of the
	// way from its request to its limit, or to all that pods may have. 0: none is.
	Throttle float64
	// Tiered keeps for pods what they ask for: for guaranteed ones always, for burstable ones while there is other
	// memory to be had.
	Tiered bool
	// Reserved is how many percent of what pods ask for those of a lower class cannot use. 0: nothing.
	Reserved int64
}

// Cgroup is the path of a pod's own cgroup; empty if the runtime is to choose.
func (n *Node) Cgroup(pod *v1.Pod, qos v1.PodQOSClass) string {
	if n.CgroupParent == "" {
		return ""
	}
	path := n.CgroupParent + "/kubepods"
	switch qos {
	case v1.PodQOSBurstable:
		path += "/burstable"
	case v1.PodQOSBestEffort:
		path += "/besteffort"
	}
	return path + "/pod" + string(pod.UID)
}
