package kubelet

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/admit"
	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/disk"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/logs"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/kubelet/node"
)

// findFacts looks at the machine, unless the node is simulated.
func (a *Agent) findFacts() error {
	f := &a.facts
	f.capacity = v1.ResourceList{}
	if !a.o.Simulated {
		if err := machine.AddCapacity(f.capacity, a.o.RootDir); err != nil {
			return err
		}
		f.machine = machine.Identify()
	}
	f.capacity[v1.ResourcePods] = *resource.NewQuantity(int64(a.o.Settings.MaxPods), resource.DecimalSI)
	for name, q := range a.o.Capacity {
		f.capacity[name] = q.DeepCopy()
	}
	var err error
	if f.sysctls, err = admit.NewSysctls(f.machine.Kernel, a.o.Settings.UnsafeSysctls); err != nil {
		return err
	}
	var eviction evict.Thresholds
	if !a.o.Simulated {
		eviction = a.o.Settings.Eviction
	}
	a.node = node.New(node.Options{
		Name: a.o.NodeName, Transport: a.o.Transport, Runtime: a.o.Runtime, Images: a.o.Images, Events: a.o.Events, Log: a.o.Log,
		Simulated: a.o.Simulated, ByHand: a.o.ByHand, Labels: a.o.Labels, Taints: a.o.Taints, Port: a.o.Port, Version: a.o.Version,
		Machine: f.machine, Addresses: a.o.NodeIPs, Capacity: f.capacity,
		Reserved: []v1.ResourceList{v1.ResourceList(a.o.Settings.KubeReserved), v1.ResourceList(a.o.Settings.SystemReserved)}, Eviction: eviction,
		ImageChanges: a.puller.Changes,
	})
	memory := f.capacity[v1.ResourceMemory]
	f.node = cri.Node{
		Name: a.o.NodeName, Allocatable: a.node.Allocatable(f.capacity), MemoryCapacity: memory.Value(),
		ClusterDNS: a.o.ClusterDNS, ClusterDomain: a.o.ClusterDomain, PodLogsDir: a.o.PodLogsDir,
		SeccompDir: filepath.Join(a.o.RootDir, "seccomp"), SandboxSeccomp: a.o.SandboxSeccomp,
	}
	for name := range f.capacity {
		if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			f.node.HugePageSizes = append(f.node.HugePageSizes, size)
		}
	}
	if !a.o.Simulated {
		f.node.CgroupParent = a.o.CgroupParent
		cgroups := cgroup.Open(cgroup.Top)
		f.node.CgroupV2 = cgroups.V2()
		f.node.LimitSwap = cgroups.HasSwap(a.o.CgroupParent)
	}
	return nil
}

// newDisk returns what pods have on the machine.
func (a *Agent) newDisk() (*disk.Disk, error) {
	return disk.New(disk.Options{
		RootDir: a.o.RootDir, PodLogsDir: a.o.PodLogsDir, Node: &a.facts.node, Log: a.o.Log,
		Logs: &logs.Rotator{
			Limits: logs.Limits{Size: a.o.Settings.LogMaxSize.Value(), Files: a.o.Settings.LogMaxFiles}, Every: a.pace, Log: a.o.Log,
			Reopen: func(ctx context.Context, id string) error {
				_, err := a.o.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
				return err
			},
		},
	})
}

// SetNodeIPs tells the agent that the node has other addresses now, the primary
// one first. The Node and the pods say so soon; a pod that runs keeps what it has
// been told in variables and files.
func (a *Agent) SetNodeIPs(ips []string) {
	ips = slices.Clone(ips)
	a.node.SetAddresses(ips)
	a.pods.SetHostIPs(ips)
}

// ImagesChanged tells the agent that others have added or removed images, for the
// node's status to say so. It does not wait.
func (a *Agent) ImagesChanged() {
	a.puller.Changed()
	a.node.Look()
}
