package pin

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/cpus"
	"github.com/kemudi/kemudi/internal/kubelet/device"
	"github.com/kemudi/kemudi/internal/kubelet/memory"
	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/internal/kubelet/sequence"
)

// Options of Pins. What is nil there is none of.
type Options struct {
	Devices *device.Manager
	CPUs    *cpus.Manager
	Memory  *memory.Manager
	// Align says how near to each other it all is to be; nil: it does not matter. What is aligned is Scope, and counted by
	// Metrics, which both are required then.
	Align   *numa.Policy
	Scope   string
	Metrics *Metrics
}

// Pins knows what pods of a node have for themselves. Its methods may be called concurrently.
type Pins struct {
	Options
	turn  chan struct{} // held by who gets devices that are to be near to something: plugins may take their time
	quick sync.Mutex    // held while processors and memory are chosen and given (P2)
}

// New returns what pods have.
func New(o Options) *Pins { return &Pins{Options: o, turn: make(chan struct{}, 1)} }

// Wants reports whether it is to be decided yet what the pod gets.
func (p *Pins) Wants(pod *v1.Pod) bool {
	return p.Align != nil || p.Devices.Wants(pod) || p.CPUs.Wants(pod) || p.Memory.Wants(pod)
}

// Take gives the pod what is to be its own, or nothing of it and says why (P1).
func (p *Pins) Take(ctx context.Context, pod *v1.Pod) (err error) {
	if p.Align != nil {
		began := time.Now()
		defer func() { p.Metrics.admitted(began, err) }()
	}
	if p.Align != nil && p.Devices.Wants(pod) { // (P3)
		select {
		case p.turn <- struct{}{}:
			defer func() { <-p.turn }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err = p.take(ctx, pod); err != nil {
		p.Release(pod.UID)
	}
	return err
}

func (p *Pins) take(ctx context.Context, pod *v1.Pod) error {
	whole := p.Align != nil && p.Scope == numa.ScopePod
	var near numa.Mask
	if whole {
		var err error
		if near, err = p.placePod(pod); err != nil {
			return err
		}
	}
	fresh := false
	for _, c := range sequence.Of(pod) {
		if !whole {
			var err error
			if near, err = p.placeContainer(pod, c.Container); err != nil {
				return err
			}
		}
		got, err := p.Devices.Give(ctx, pod, c.Container, near)
		if err != nil {
			return err
		}
		fresh = fresh || got
	}
	if fresh {
		if err := p.Devices.Save(); err != nil {
			return err
		}
	}
	if p.CPUs.Any(pod.UID) {
		if err := p.CPUs.Save(); err != nil {
			return err
		}
	}
	if p.Memory.Any(pod.UID) {
		return p.Memory.Save()
	}
	return nil
}

// placePod gives the containers of a pod their processors and memory near to each other, and returns where their
// devices are to be; 0: anywhere.
func (p *Pins) placePod(pod *v1.Pod) (numa.Mask, error) {
	p.quick.Lock()
	defer p.quick.Unlock()
	near, err := p.align(p.Devices.PodHints(p.Align.Machine, pod), p.CPUs.PodHints(pod), p.Memory.PodHints(pod))
	if err != nil {
		return 0, err
	}
	for _, c := range sequence.Of(pod) {
		if err := p.giveLocked(pod, c.Container, near); err != nil {
			return 0, err
		}
	}
	return near, nil
}

// placeContainer does the same for one container.
func (p *Pins) placeContainer(pod *v1.Pod, c *v1.Container) (near numa.Mask, err error) {
	p.quick.Lock()
	defer p.quick.Unlock()
	if p.Align != nil {
		if near, err = p.align(p.Devices.Hints(p.Align.Machine, pod, c), p.CPUs.Hints(pod, c), p.Memory.Hints(pod, c)); err != nil {
			return 0, err
		}
	}
	return near, p.giveLocked(pod, c, near)
}

func (p *Pins) giveLocked(pod *v1.Pod, c *v1.Container, near numa.Mask) error {
	if err := p.CPUs.Give(pod, c, near); err != nil {
		return err
	}
	return p.Memory.Give(pod, c, near)
}

// errAffinity says that what a pod asks for is not near enough to each other.
var errAffinity error = &affinity{}

type affinity struct{}

func (*affinity) Error() string { return "Resources cannot be allocated with Topology locality" }

// Reason is that of a pod which is rejected for it.
func (*affinity) Reason() string { return "TopologyAffinityError" }

// align chooses the nodes that suit all.
func (p *Pins) align(all ...numa.Hints) (numa.Mask, error) {
	best, admit := p.Align.Merge(all)
	p.Metrics.aligned(p, admit)
	if !admit {
		return 0, errAffinity
	}
	return best.Nodes, nil
}

// Release takes back what a pod has of which nothing runs any more.
func (p *Pins) Release(uid types.UID) {
	p.Devices.Release(uid)
	p.CPUs.Release(uid)
	p.Memory.Release(uid)
}

// Keep takes back what pods have that are not there any more.
func (p *Pins) Keep(there func(types.UID) bool) {
	p.Devices.Keep(there)
	p.CPUs.Keep(there)
	p.Memory.Keep(there)
}

// Place is where a container runs: lists of processors and of NUMA nodes as the kernel has them; empty: anywhere.
type Place struct{ CPUs, Nodes string }

// Place is where a container of a pod runs at present.
func (p *Pins) Place(uid types.UID, container string) Place {
	return Place{p.CPUs.Set(uid, container).String(), p.Memory.Nodes(uid, container).String()}
}

// Hold holds a container to its place. One that has its processors for itself is not held to a limit of them: it could only
// lose by that.
func (p *Pins) Hold(pod *v1.Pod, container string, r *runtimeapi.LinuxContainerResources) {
	at := p.Place(pod.UID, container)
	r.CpusetCpus, r.CpusetMems = at.CPUs, at.Nodes
	if !p.CPUs.Of(pod.UID, container).IsEmpty() {
		r.CpuQuota = -1
	}
}

// HoldPod does the same with the pod as a whole, around its containers.
func (p *Pins) HoldPod(pod *v1.Pod, r *runtimeapi.LinuxContainerResources) {
	if p.CPUs.Any(pod.UID) {
		r.CpuQuota = 0
	}
}

// Pools reports whether there is a pool of processors that containers share, which may become another one while they run.
func (p *Pins) Pools() bool { return p.CPUs != nil }

// Frozen says why a pod that is guaranteed what it asks for cannot ask for another amount of a resource while it runs, in a word for
// metrics and as a message; empty: it can.
func (p *Pins) Frozen(pod *v1.Pod, changed func(v1.ResourceName) bool) (detail, message string) {
	if core.QOSClass(pod) != v1.PodQOSGuaranteed {
		return "", ""
	}
	if p.CPUs != nil && changed(v1.ResourceCPU) {
		return "guaranteed_pod_cpu_manager_static_policy", `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
	}
	if p.Memory != nil && changed(v1.ResourceMemory) {
		return "guaranteed_pod_memory_manager_static_policy", `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`
	}
	return "", ""
}

// Refusal is why a pod is rejected for an error of [Pins.Take], as reason and message.
func Refusal(err error) (reason, message string) {
	var told interface {
		error
		Reason() string
	}
	if errors.As(err, &told) {
		return told.Reason(), told.Error()
	}
	return "UnexpectedAdmissionError", "Allocate failed due to " + err.Error() + ", which is unexpected"
}
