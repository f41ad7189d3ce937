package disk

import (
	"errors"
	"fmt"
	"os"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/admit"
	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// PrepareSandbox makes what a sandbox needs on the machine. asked is what the
// pods of the node have asked for together.
func (d *Disk) PrepareSandbox(config *runtimeapi.PodSandboxConfig, limits *runtimeapi.LinuxContainerResources, asked admit.Asked) error {
	if d == nil {
		return nil
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	path := config.GetLinux().GetCgroupParent()
	if path == "" {
		return nil
	}
	if err := d.cgroups.Ensure(path, limits); err != nil {
		return fmt.Errorf("make cgroup of pod: %w", err)
	}
	if n := d.o.Node.PodProcesses; n > 0 {
		if err := d.cgroups.Hold(path, cgroup.Bound{Processes: n}); err != nil {
			return fmt.Errorf("limit processes of pod: %w", err)
		}
	}
	return d.WeighClasses(asked)
}

// Limit sets the limits of a pod's cgroup.
func (d *Disk) Limit(path string, limits *runtimeapi.LinuxContainerResources) error {
	if d == nil || path == "" {
		return nil
	}
	return d.cgroups.Ensure(path, limits)
}

// Processes is how many processes and threads a pod's cgroup has.
func (d *Disk) Processes(path string) (int64, error) {
	if d == nil || path == "" {
		return 0, nil
	}
	return d.cgroups.Processes(path)
}

// WeighClasses gives the quality of service classes their shares of the CPU:
// burstable pods what they asked for together, best-effort ones what is left. Where that is wanted, memory that
// pods have asked for is kept for them.
func (d *Disk) WeighClasses(asked admit.Asked) error {
	if d == nil {
		return nil
	}
	pods := d.o.Node.CgroupParent + "/kubepods"
	err := errors.Join(
		d.cgroups.Shares(pods+"/burstable", cri.CPUShares(asked.CPU)),
		d.cgroups.Shares(pods+"/besteffort", cri.CPUShares(0)),
	)
	if m := &d.o.Node.Memory; m.Tiered && d.o.Node.CgroupV2 {
		err = errors.Join(err,
			d.cgroups.Protect(pods, asked.Guaranteed+asked.Memory, asked.Memory), // what is low below has effect only if it is here, too
			d.cgroups.Protect(pods+"/burstable", 0, asked.Memory),
		)
	}
	if percent := d.o.Node.Memory.Reserved; percent > 0 {
		d.reserve(pods, percent, asked)
	}
	return err
}

// freeClasses ends what an agent with other settings has set of the memory of all pods and of their classes, where none of it is to be:
// pods outlive an agent, and their cgroups do.
func (d *Disk) freeClasses() error {
	if d.o.Node.CgroupParent == "" {
		return nil // they are the runtime's
	}
	pods, m := d.o.Node.CgroupParent+"/kubepods", &d.o.Node.Memory
	var errs []error
	if !m.Tiered {
		errs = append(errs, d.cgroups.Unprotect(pods), d.cgroups.Unprotect(pods+"/burstable"))
	}
	if m.Reserved == 0 {
		errs = append(errs, d.cgroups.Unlimit(pods+"/burstable"), d.cgroups.Unlimit(pods+"/besteffort"))
	}
	return errors.Join(errs...)
}

// reserve holds classes to what is left of the memory of all pods when a part of what those above have asked for is taken away.
// Where they have more already, evictions are to see to it, or the ends of pods: then it is tried again with the next pod.
func (d *Disk) reserve(pods string, percent int64, asked admit.Asked) {
	all := d.o.Node.Allocatable.Memory().Value()
	if all == 0 {
		return
	}
	burstable := all - asked.Guaranteed*percent/100
	for class, limit := range map[string]int64{"/burstable": burstable, "/besteffort": burstable - asked.Memory*percent/100} {
		if err := d.cgroups.Hold(pods+class, cgroup.Bound{Memory: max(limit, 1)}); err != nil {
			d.o.Log.Warn("reserve memory for pods of higher classes", "class", class[1:], "err", err)
		}
	}
}
