package container

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// Resize gives the listed containers of the pod what its spec asks for, and returns
// what they have got, by their IDs.
func (r *Runner) Resize(ctx context.Context, pod *v1.Pod, list []podstep.Container) (map[string]v1.ResourceRequirements, error) {
	if err := r.checkMemory(ctx, pod, list); err != nil {
		return nil, err
	}
	return r.applyResources(ctx, pod, list)
}

// checkMemory refuses limits below what is in use: the kernel would kill for them.
func (r *Runner) checkMemory(ctx context.Context, pod *v1.Pod, list []podstep.Container) error {
	resp, err := r.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{
		Filter: &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{cri.LabelPodUID: string(pod.UID)}},
	})
	if err != nil {
		return fmt.Errorf("look at what containers use: %w", err)
	}
	used, all := map[string]int64{}, int64(0)
	for _, s := range resp.Stats {
		if s.GetAttributes().GetLabels()[cri.LabelPodUID] == string(pod.UID) {
			n := int64(s.GetMemory().GetWorkingSetBytes().GetValue())
			used[s.Attributes.Id] = n
			all += n
		}
	}
	var problems []string
	node := r.now()
	if limit := cri.PodCgroup(pod, &node).MemoryLimitInBytes; limit > 0 && all > limit {
		problems = append(problems, fmt.Sprintf("attempting to set pod memory limit (%d) below current usage (%d)", limit, all))
	}
	for _, c := range list {
		limit := cri.FindContainer(pod, c.Name).Resources.Limits.Memory().Value()
		if limit > 0 && used[c.ID] > limit {
			problems = append(problems, fmt.Sprintf("attempting to set container %q memory limit (%d) below current usage (%d)", c.Name, limit, used[c.ID]))
		}
	}
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("cannot decrease memory limits: %s", problems[0])
	}
	return fmt.Errorf("cannot decrease memory limits: [%s]", strings.Join(problems, ", "))
}

// Processes is how many processes and threads a pod has.
func (r *Runner) Processes(pod *v1.Pod) (int64, error) {
	node := r.now()
	return r.Disk.Processes(node.Cgroup(pod, core.QOSClass(pod)))
}

// applyResources sets the limits of the containers, and around them those of the
// pod's cgroup: what holds them all must be wide enough at every moment.
func (r *Runner) applyResources(ctx context.Context, pod *v1.Pod, list []podstep.Container) (map[string]v1.ResourceRequirements, error) {
	node := r.now()
	path := node.Cgroup(pod, core.QOSClass(pod))
	limits := cri.PodCgroup(pod, &node)
	r.Pins.HoldPod(pod, limits)
	wide := &runtimeapi.LinuxContainerResources{CpuShares: limits.CpuShares, CpuPeriod: limits.CpuPeriod}
	if err := r.Disk.Limit(path, wide); err != nil {
		return nil, err
	}
	done := map[string]v1.ResourceRequirements{}
	var errs []error
	for _, c := range list {
		spec := cri.FindContainer(pod, c.Name)
		limits := cri.Resources(pod, spec, &node)
		r.Pins.Hold(pod, c.Name, limits)
		if limits.CpuQuota == 0 {
			limits.CpuQuota = -1 // 0 would leave it as it is
		}
		if limits.MemoryLimitInBytes == 0 {
			limits.MemoryLimitInBytes = -1
		}
		if _, err := r.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: c.ID, Linux: limits}); err != nil {
			errs = append(errs, fmt.Errorf("resize container %s: %w", c.Name, err))
			continue
		}
		done[c.ID] = spec.Resources
	}
	errs = append(errs, r.Disk.Limit(path, limits), r.Disk.WeighClasses(r.Ledger.Asked()))
	return done, errors.Join(errs...)
}
