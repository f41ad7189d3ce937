package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/task"
)

// What --enforce-node-allocatable may name.
const (
	enforceNone   = "none"
	enforcePods   = "pods"
	enforceSystem = "system-reserved"
	enforceKube   = "kube-reserved"
)

// checkEnforcement checks the settings of what is enforced.
func (s *Settings) checkEnforcement() error {
	for _, what := range s.Enforce {
		switch {
		case !slices.Contains([]string{enforceNone, enforcePods, enforceSystem, enforceKube}, what):
			return fmt.Errorf("enforce-node-allocatable: option %q: valid options are none, pods, system-reserved and kube-reserved", what)
		case what == enforceNone && len(s.Enforce) > 1:
			return errors.New("enforce-node-allocatable: nothing else may be named beside none")
		case what == enforceSystem && s.SystemCgroup == "":
			return errors.New("system-reserved-cgroup: must be given when enforce-node-allocatable names system-reserved")
		case what == enforceKube && s.KubeCgroup == "":
			return errors.New("kube-reserved-cgroup: must be given when enforce-node-allocatable names kube-reserved")
		case what == enforceSystem && len(s.SystemReserved) == 0:
			return errors.New("system-reserved: must be given when enforce-node-allocatable names system-reserved")
		case what == enforceKube && len(s.KubeReserved) == 0:
			return errors.New("kube-reserved: must be given when enforce-node-allocatable names kube-reserved")
		}
	}
	return nil
}

// enforcement sets the limits of cgroups: of the one above all pods, to what the node has for pods, and, if
// it is told to, of those of the system and of the cluster's own programs, to what is reserved for them.
type enforcement struct {
	s        Settings
	capacity v1.ResourceList
	pods     string // cgroup of all pods
	note     string // file that says what cgroups of others were held to before
	events   client.EventSink
	node     func() *v1.Node
	log      *slog.Logger
}

// holding is one cgroup that is held.
type holding struct {
	hold       func() error
	done, fail string // what events say
}

// enforceRetry is how long what could not be enforced waits, as for pods to be evicted that have too much.
const enforceRetry = time.Minute

// run enforces it all, and what fails every minute until it has been done.
func (e *enforcement) run(ctx context.Context) error {
	return e.hold(ctx, e.holdings(cgroup.Open(cgroup.Top)))
}

func (e *enforcement) hold(ctx context.Context, list []holding) error {
	list = slices.Clone(list)
	for {
		list = slices.DeleteFunc(list, func(h holding) bool {
			err := h.hold()
			if err != nil {
				e.log.Warn("hold cgroup to node allocatable", "err", err)
				e.events.Event(e.node(), v1.EventTypeWarning, "FailedNodeAllocatableEnforcement", h.fail+": "+err.Error())
				return false
			}
			e.events.Event(e.node(), v1.EventTypeNormal, "NodeAllocatableEnforced", h.done)
			return true
		})
		if len(list) == 0 {
			return nil
		}
		if err := task.Sleep(ctx, enforceRetry); err != nil {
			return err
		}
	}
}

func (e *enforcement) holdings(tree cgroup.Tree) []holding {
	list := []holding{{
		func() error {
			b, err := e.podsBound()
			if err != nil {
				return err
			}
			return tree.Hold(e.pods, b)
		},
		"Updated Node Allocatable limit across pods", fmt.Sprintf("Failed to update Node Allocatable Limits %q", e.pods),
	}}
	if slices.Contains(e.s.Enforce, enforceSystem) {
		list = append(list, holding{
			func() error { return tree.HoldOther(e.s.SystemCgroup, bound(e.s.SystemReserved), e.note) },
			"Updated limits on system reserved cgroup " + e.s.SystemCgroup, fmt.Sprintf("Failed to enforce System Reserved Cgroup Limits on %q", e.s.SystemCgroup),
		})
	}
	if slices.Contains(e.s.Enforce, enforceKube) {
		list = append(list, holding{
			func() error { return tree.HoldOther(e.s.KubeCgroup, bound(e.s.KubeReserved), e.note) },
			"Updated limits on kube reserved cgroup " + e.s.KubeCgroup, fmt.Sprintf("Failed to enforce Kube Reserved Cgroup Limits on %q", e.s.KubeCgroup),
		})
	}
	return list
}

// podsBound is what all pods together are held to: what the node has, less what is reserved if
// that is enforced. What must be left free before pods are evicted is theirs all the same, or none would be.
func (e *enforcement) podsBound() (cgroup.Bound, error) {
	all := e.capacity.DeepCopy()
	if slices.Contains(e.s.Enforce, enforcePods) {
		for _, list := range []Reserved{e.s.KubeReserved, e.s.SystemReserved} {
			for name, reserved := range list {
				if q, ok := all[name]; ok {
					q.Sub(reserved)
					all[name] = q
				}
			}
		}
	}
	b := bound(Reserved(all))
	if pids := e.reservedProcesses(); pids > 0 && slices.Contains(e.s.Enforce, enforcePods) {
		_, most, err := machine.Processes()
		if err != nil {
			return b, err
		}
		b.Processes = max(most-pids, 1)
	}
	return b, nil
}

func (e *enforcement) reservedProcesses() (n int64) {
	for _, list := range []Reserved{e.s.KubeReserved, e.s.SystemReserved} {
		q := list[reservedPIDs]
		n += q.Value()
	}
	return n
}

// bound is a list of resources as the limits of a cgroup.
func bound(list Reserved) cgroup.Bound {
	cpu, memory, pids := list[v1.ResourceCPU], list[v1.ResourceMemory], list[reservedPIDs]
	b := cgroup.Bound{Memory: memory.Value(), Processes: pids.Value()}
	if !cpu.IsZero() {
		b.Shares = cri.CPUShares(cpu.MilliValue())
	}
	return b
}

// enforce returns the part of an agent that does it.
func (a *Agent) enforce(capacity v1.ResourceList) func(context.Context) error {
	e := &enforcement{
		s: a.o.Settings, capacity: capacity, pods: podsCgroup(&a.o), note: CgroupNote(a.o.RootDir),
		events: a.o.Events, node: a.node.Self, log: a.o.Log,
	}
	return e.run
}

// podsCgroup is that of all pods.
func podsCgroup(o *Options) string { return o.CgroupParent + "/kubepods" }

// heldMemory is how many bytes all pods together are held to; 0: to those of the machine.
func (s *Settings) heldMemory(capacity v1.ResourceList) int64 {
	all := capacity.Memory().Value()
	b, err := (&enforcement{s: *s, capacity: capacity}).podsBound()
	if err != nil || b.Memory == all { // who enforces it tells of the error
		return 0
	}
	return b.Memory
}

// CgroupNote is the file that says what cgroups of others were held to before.
func CgroupNote(rootDir string) string { return filepath.Join(rootDir, "cgroup-limits") }
