package kubelet

import (
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/kubelet/admit"
	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
)

// facts is what the agent finds out about the node once.
type facts struct {
	capacity v1.ResourceList
	machine  machine.Info
	sysctls  *admit.Sysctls
}

// findFacts looks at the machine, unless the node is simulated.
func findFacts(o *Options) (*facts, error) {
	f := &facts{capacity: v1.ResourceList{}}
	if !o.Simulated {
		if err := machine.AddCapacity(f.capacity, o.RootDir); err != nil {
			return nil, err
		}
		f.machine = machine.Identify()
	}
	f.capacity[v1.ResourcePods] = *resource.NewQuantity(int64(o.Settings.MaxPods), resource.DecimalSI)
	for name, q := range o.Capacity {
		f.capacity[name] = q.DeepCopy()
	}
	if _, said := o.Capacity[v1.ResourcePods]; o.Settings.PodsPerCore > 0 && !said {
		most := min(int64(o.Settings.PodsPerCore)*f.capacity.Cpu().Value(), int64(o.Settings.MaxPods))
		f.capacity[v1.ResourcePods] = *resource.NewQuantity(most, resource.DecimalSI)
	}
	var err error
	f.sysctls, err = admit.NewSysctls(f.machine.Kernel, o.Settings.UnsafeSysctls)
	return f, err
}

// forPods is what pods are translated with; allocatable is what the node has for them.
func (f *facts) forPods(o *Options, allocatable v1.ResourceList) cri.Node {
	memory := f.capacity[v1.ResourceMemory]
	n := cri.Node{
		Name: o.NodeName, Allocatable: allocatable, MemoryCapacity: memory.Value(),
		ClusterDNS: o.ClusterDNS, ClusterDomain: o.ClusterDomain, PodLogsDir: o.PodLogsDir,
		SeccompDir: filepath.Join(o.RootDir, "seccomp"), SandboxSeccomp: o.SandboxSeccomp, SeccompDefault: o.Settings.Containers.SeccompDefault,
		NoCPULimits: o.Settings.Containers.NoCPULimits, CPUPeriod: o.Settings.Containers.CPUPeriod, OneProcess: o.Settings.Containers.OneProcess,
		PodProcesses: o.Settings.Containers.Processes, Memory: o.Settings.Containers.Memory.qos(), Sysctls: o.Settings.Containers.Sysctls,
	}
	for name := range f.capacity {
		if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			n.HugePageSizes = append(n.HugePageSizes, size)
		}
	}
	if !o.Simulated {
		n.CgroupParent = o.CgroupParent
		n.Masked, _ = filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle") // the pattern is good
		cgroups := cgroup.Open(cgroup.Top)
		n.CgroupV2 = cgroups.V2()
		n.LimitSwap = cgroups.HasSwap(o.CgroupParent)
		if o.Settings.Containers.Swap == LimitedSwap {
			n.Swap = f.machine.Swap
		}
	}
	return n
}
