package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
)

// resize lets the pod have what its spec asks for now, or says why not: then it
// keeps what it has, and is asked about again when others have gone.
func (x *actor) resize() {
	x.d.Deferred = nil
	reason, message := x.a.ledger.Resize(x.d.Pod, x.a.facts.node.Allocatable, func() { x.post((*actor).resize) })
	if reason == "" {
		return
	}
	x.d.Deferred = &podstep.Failure{Reason: reason, Message: message}
	x.reportResize("Resize"+reason, v1.EventTypeWarning, resizeText("Pod resize "+reason, x.d.Pod, message))
}

// reportResize tells each thing once for each change of the pod.
func (x *actor) reportResize(reason, kind, message string) {
	key := "resize " + reason + message
	if x.reported[key] {
		return
	}
	maps.DeleteFunc(x.reported, func(old string, _ bool) bool { return strings.HasPrefix(old, "resize "+reason) })
	x.reported[key] = true
	x.event("", kind, reason, message)
}

// resizeText is what an event says of a resize: title, the resources asked for,
// and what is wrong, if something is.
func resizeText(title string, pod *v1.Pod, problem string) string {
	type asked struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources"`
	}
	out := struct {
		InitContainers []asked `json:"initContainers,omitempty"`
		Containers     []asked `json:"containers"`
		Generation     int64   `json:"generation"`
		Error          string  `json:"error,omitempty"`
	}{Generation: pod.Generation, Error: problem}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; core.IsSidecar(c) {
			out.InitContainers = append(out.InitContainers, asked{c.Name, c.Resources})
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		out.Containers = append(out.Containers, asked{c.Name, c.Resources})
	}
	data, err := json.Marshal(out)
	if err != nil {
		panic(fmt.Sprintf("encode resources of pod %s: %v", pod.UID, err))
	}
	return title + ": " + string(data)
}

// resizePod gives the pod's running containers what its spec asks for.
type resizePod struct {
	a    *Agent
	pod  *v1.Pod
	list []podstep.Container
	done map[string]v1.ResourceRequirements // by container ID
}

func (x *actor) resizePod() work {
	w := &resizePod{a: x.a, pod: x.d.Pod}
	for _, c := range x.o.Containers {
		if c.State == podstep.Running && cri.FindContainer(w.pod, c.Name) != nil {
			w.list = append(w.list, c)
		}
	}
	x.reportResize("ResizeStarted", v1.EventTypeNormal, resizeText("Pod resize started", w.pod, ""))
	return w
}

func (w *resizePod) do(ctx context.Context) (err error) {
	if err := w.a.checkMemory(ctx, w.pod, w.list); err != nil {
		return err
	}
	w.done, err = w.a.applyResources(ctx, w.pod, w.list)
	return err
}

func (w *resizePod) note(x *actor, err error) {
	for id, r := range w.done {
		x.o.Resized[id] = r
	}
	if err != nil {
		x.reportResize("ResizeError", v1.EventTypeWarning, resizeText("Pod resize error", w.pod, runtime.Message(err)))
		return
	}
	x.volumesStale() // they may tell of it
	x.event("", v1.EventTypeNormal, "ResizeCompleted", resizeText("Pod resize completed", w.pod, ""))
}

// checkMemory refuses limits below what is in use: the kernel would kill for them.
func (a *Agent) checkMemory(ctx context.Context, pod *v1.Pod, list []podstep.Container) error {
	resp, err := a.o.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{
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
	node := a.nodeFacts()
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

// applyResources sets the limits of the containers, and around them those of the
// pod's cgroup: what holds them all must be wide enough at every moment.
func (a *Agent) applyResources(ctx context.Context, pod *v1.Pod, list []podstep.Container) (map[string]v1.ResourceRequirements, error) {
	node := a.nodeFacts()
	path := node.Cgroup(pod, core.QOSClass(pod))
	limits := cri.PodCgroup(pod, &node)
	wide := &runtimeapi.LinuxContainerResources{CpuShares: limits.CpuShares, CpuPeriod: limits.CpuPeriod}
	if err := a.disk.Limit(path, wide); err != nil {
		return nil, err
	}
	done := map[string]v1.ResourceRequirements{}
	var errs []error
	for _, c := range list {
		spec := cri.FindContainer(pod, c.Name)
		r := cri.Resources(pod, spec, &node)
		if r.CpuQuota == 0 {
			r.CpuQuota = -1 // 0 would leave it as it is
		}
		if r.MemoryLimitInBytes == 0 {
			r.MemoryLimitInBytes = -1
		}
		if _, err := a.o.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: c.ID, Linux: r}); err != nil {
			errs = append(errs, fmt.Errorf("resize container %s: %w", c.Name, err))
			continue
		}
		done[c.ID] = spec.Resources
	}
	errs = append(errs, a.disk.Limit(path, limits), a.disk.WeighClasses(a.ledger.Burstable()))
	return done, errors.Join(errs...)
}
