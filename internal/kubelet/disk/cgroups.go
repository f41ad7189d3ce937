package disk

import (
	"errors"
	"fmt"
	"os"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// PrepareSandbox makes what a sandbox needs on the machine. burstable is what the
// burstable pods of the node have asked for together, in thousandths of a CPU.
func (d *Disk) PrepareSandbox(config *runtimeapi.PodSandboxConfig, limits *runtimeapi.LinuxContainerResources, burstable int64) error {
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
	return d.WeighClasses(burstable)
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
// burstable pods what they asked for together, best-effort ones what is left.
func (d *Disk) WeighClasses(burstable int64) error {
	if d == nil {
		return nil
	}
	parent := d.o.Node.CgroupParent
	return errors.Join(
		d.cgroups.Shares(parent+"/kubepods/burstable", cri.CPUShares(burstable)),
		d.cgroups.Shares(parent+"/kubepods/besteffort", cri.CPUShares(0)),
	)
}
