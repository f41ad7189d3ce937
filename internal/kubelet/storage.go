package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// weighStorage is the action of measuring what a pod holds on disk. The step
// does not ask for it, but must know that it is under way.
const weighStorage podstep.Op = "weigh-storage"

// stepStorage has the pod's storage measured if it is time, and returns when that
// is (zero: never, as nothing limits it).
func (x *actor) stepStorage(ending bool) time.Time {
	if !x.limited || !x.o.VolumesReady || ending {
		return time.Time{}
	}
	act := podstep.Action{Op: weighStorage}
	if _, doing := x.o.Doing[act.Key()]; doing {
		return time.Time{}
	}
	if x.weighAt.IsZero() {
		x.weighAt = time.Now().Add(x.a.pace)
	}
	if time.Now().Before(x.weighAt) {
		return x.weighAt
	}
	x.begin(act)
	return time.Time{}
}

func (x *actor) weighOp() func(context.Context) after {
	a, pod := x.a, x.d.Pod
	return func(ctx context.Context) after {
		held, err := a.weigh(ctx, pod)
		if err != nil && ctx.Err() == nil {
			a.o.Log.Warn("measure the storage of a pod", "pod", pod.Namespace+"/"+pod.Name, "err", err)
		}
		return func(x *actor) {
			x.weighAt = time.Now().Add(x.a.pace)
			if err == nil {
				if message := evict.OverLimit(pod, held); message != "" {
					x.evict(message)
				}
			}
		}
	}
}

// evict ends the pod because of what it uses.
func (x *actor) evict(message string) {
	if x.d.Evict != nil || x.d.Gone {
		return
	}
	x.a.o.Log.Info("evict pod", "pod", x.name(), "why", message)
	x.event("", v1.EventTypeWarning, podstep.ReasonEvicted, message)
	x.d.Evict = &podstep.Eviction{Message: message}
}

// containerStatsOf asks the runtime what the pod's containers use.
func (a *Agent) containerStatsOf(ctx context.Context, pod *v1.Pod) ([]*runtimeapi.ContainerStats, error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeDeadline)
	defer cancel()
	resp, err := a.o.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{
		Filter: &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{cri.LabelPodUID: string(pod.UID)}},
	})
	if err != nil {
		return nil, fmt.Errorf("ask what containers use: %w", err)
	}
	return resp.Stats, nil
}

// storageOf measures what the pod holds on disk: its volumes and logs now, its
// writable layers as the runtime has last seen them.
func (a *Agent) storageOf(ctx context.Context, pod *v1.Pod) (evict.Storage, error) {
	out := evict.Storage{Volumes: map[string]int64{}, Containers: map[string]int64{}}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.EmptyDir != nil {
			out.Volumes[v.Name] = evict.DiskUsage(a.disk.volumes.Path(pod, v))
		}
	}
	logs := cri.PodLogDir(a.o.PodLogsDir, pod.Namespace, pod.Name, string(pod.UID))
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out.Containers[list[i].Name] = evict.DiskUsage(filepath.Join(logs, list[i].Name))
		}
	}
	out.Other = evict.DiskUsage(filepath.Join(a.disk.volumes.PodDir(pod.UID), "containers"))
	stats, err := a.containerStatsOf(ctx, pod)
	if err != nil {
		return out, err
	}
	for _, s := range stats {
		out.Containers[s.GetAttributes().GetMetadata().GetName()] += int64(s.GetWritableLayer().GetUsedBytes().GetValue())
	}
	return out, nil
}
