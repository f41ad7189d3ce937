package kubelet

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/kemudi/kemudi/internal/kubelet/cpus"
	"github.com/kemudi/kemudi/internal/kubelet/device"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/memory"
	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/internal/kubelet/pin"
	"github.com/kemudi/kemudi/internal/kubelet/state"
)

// Pinning says which processors and which memory containers have for themselves. The zero value says none.
type Pinning struct {
	CPUPolicy   string            // --cpu-manager-policy
	CPUOptions  map[string]string // --cpu-manager-policy-options
	ReservedCPU string            // --reserved-cpus

	MemoryPolicy   string          // --memory-manager-policy
	ReservedMemory memory.Reserved // --reserved-memory

	// TopologyPolicy says how near to each other it all is to be (--topology-manager-policy), TopologyScope whether for each container
	// or for pods as a whole (--topology-manager-scope).
	TopologyPolicy, TopologyScope string
	TopologyOptions               map[string]string // --topology-manager-policy-options
}

func (p Pinning) withDefaults() Pinning {
	for s, value := range map[*string]string{&p.CPUPolicy: cpus.None, &p.MemoryPolicy: memory.None, &p.TopologyPolicy: numa.None, &p.TopologyScope: numa.ScopeContainer} {
		if *s == "" {
			*s = value
		}
	}
	return p
}

// none says that nothing is pinned, or has to be near to anything.
func (p *Pinning) none() bool {
	return p.CPUPolicy == cpus.None && p.MemoryPolicy == memory.None && p.TopologyPolicy == numa.None
}

func (p *Pinning) check() error {
	oneOf := func(name, value string, of ...string) error {
		if slices.Contains(of, value) {
			return nil
		}
		return fmt.Errorf("%s: %q must be one of: %q", name, value, of)
	}
	_, rules := cpus.ParseRules(p.CPUOptions)
	if rules != nil {
		rules = fmt.Errorf("cpu-manager-policy-options: %w", rules)
	}
	if p.CPUPolicy == cpus.None && len(p.CPUOptions) > 0 {
		rules = errors.New("cpu-manager-policy-options: the none policy received unexpected options")
	}
	options := numa.CheckOptions(p.TopologyOptions)
	if options != nil {
		options = fmt.Errorf("topology-manager-policy-options: %w", options)
	}
	_, reserved := cpuset.Parse(p.ReservedCPU)
	if reserved != nil {
		reserved = fmt.Errorf("reserved-cpus: %w", reserved)
	}
	return errors.Join(
		oneOf("cpu-manager-policy", p.CPUPolicy, cpus.None, cpus.Static), rules, reserved,
		oneOf("memory-manager-policy", p.MemoryPolicy, memory.None, memory.Static),
		oneOf("topology-manager-policy", p.TopologyPolicy, numa.None, numa.BestEffort, numa.Restricted, numa.SingleNode),
		oneOf("topology-manager-scope", p.TopologyScope, numa.ScopeContainer, numa.ScopePod), options,
	)
}

// reserveCPUs has the processors that are named take the place of the amounts that are reserved of them.
func (s *Settings) reserveCPUs() error {
	if s.Pinning.ReservedCPU == "" {
		return nil
	}
	if s.KubeCgroup != "" || s.SystemCgroup != "" {
		return errors.New("reserved-cpus: can't be used with system-reserved-cgroup or kube-reserved-cgroup")
	}
	set, err := cpuset.Parse(s.Pinning.ReservedCPU)
	if err != nil {
		return fmt.Errorf("reserved-cpus: %w", err)
	}
	s.KubeReserved, s.SystemReserved = maps.Clone(s.KubeReserved), maps.Clone(s.SystemReserved)
	delete(s.KubeReserved, v1.ResourceCPU)
	if s.SystemReserved == nil {
		s.SystemReserved = Reserved{}
	}
	s.SystemReserved[v1.ResourceCPU] = *resource.NewQuantity(int64(set.Size()), resource.DecimalSI)
	return nil
}

// newPins returns what knows what pods have for themselves. Where nothing is pinned that is the devices of plugins.
func (a *Agent) newPins(f *facts, devices *device.Manager) (*pin.Pins, error) {
	p, root := &a.o.Settings.Pinning, a.o.RootDir
	if a.o.Simulated && a.o.fake.machine == nil {
		return pin.New(pin.Options{Devices: devices}), nil
	}
	files := map[string]string{state.CPUFile: filepath.Join(root, state.CPUFile), state.MemoryFile: filepath.Join(root, state.MemoryFile)}
	if p.CPUPolicy == cpus.None {
		if _, err := state.ReadCPUs(files[state.CPUFile], cpus.None); err != nil {
			return nil, err
		}
	}
	if p.MemoryPolicy == memory.None {
		if _, err := state.ReadMemory(files[state.MemoryFile], memory.None); err != nil {
			return nil, err
		}
	}
	if p.none() {
		return pin.New(pin.Options{Devices: devices}), nil
	}
	machine := a.o.fake.machine
	if machine == nil {
		all := f.capacity[v1.ResourceMemory]
		var err error
		if machine, err = numa.Read(numa.Top, all.Value()); err != nil {
			return nil, err
		}
	}
	out, alignments := pin.Options{Devices: devices, Scope: p.TopologyScope}, numa.NewAlignments(a.registry)
	var err error
	if p.TopologyPolicy != numa.None {
		if out.Align, err = numa.NewPolicy(p.TopologyPolicy, p.TopologyOptions, machine); err != nil {
			return nil, fmt.Errorf("topology manager: %w", err)
		}
		out.Metrics = pin.NewMetrics(a.registry, alignments)
	}
	if p.CPUPolicy == cpus.Static {
		if out.CPUs, err = a.newCPUs(machine, files[state.CPUFile], alignments); err != nil {
			return nil, fmt.Errorf("cpu manager: %w", err)
		}
	}
	if p.MemoryPolicy == memory.Static {
		out.Memory, err = memory.New(memory.Options{
			Machine: machine, Reserved: p.ReservedMemory, Kept: a.o.keptMemory(f.capacity), Path: files[state.MemoryFile], Registry: a.registry, Log: a.o.Log,
		})
		if err != nil {
			return nil, fmt.Errorf("memory manager: %w", err)
		}
	}
	return pin.New(out), nil
}

func (a *Agent) newCPUs(machine *numa.Machine, path string, alignments *numa.Alignments) (*cpus.Manager, error) {
	p := &a.o.Settings.Pinning
	rules, err := cpus.ParseRules(p.CPUOptions)
	if err != nil {
		return nil, err
	}
	reserved, err := cpuset.Parse(p.ReservedCPU)
	if err != nil {
		return nil, err
	}
	var sum resource.Quantity
	for _, list := range []Reserved{a.o.Settings.KubeReserved, a.o.Settings.SystemReserved} {
		sum.Add(list[v1.ResourceCPU])
	}
	return cpus.New(cpus.Options{
		Machine: machine, Rules: rules, Reserve: int(sum.Value()), Reserved: reserved, Aligned: p.TopologyPolicy, Path: path,
		Changed: func() { a.pods.PoolChanged() }, Alignments: alignments, Registry: a.registry, Log: a.o.Log,
	})
}

// keptMemory is what of the node's memory is not for pods.
func (o *Options) keptMemory(capacity v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	add := func(name v1.ResourceName, q resource.Quantity) {
		if sum := out[name]; !q.IsZero() {
			sum.Add(q)
			out[name] = sum
		}
	}
	for _, list := range []Reserved{o.Settings.KubeReserved, o.Settings.SystemReserved} {
		for name, q := range list {
			add(name, q)
		}
	}
	if all := capacity[v1.ResourceMemory]; !o.Simulated {
		add(v1.ResourceMemory, *resource.NewQuantity(evict.Held(o.Settings.Eviction, evict.MemoryAvailable, all.Value()), resource.BinarySI))
	}
	return out
}
