package kubelet

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// measureStorage measures what the pod holds on disk.
type measureStorage struct {
	a    *Agent
	pod  *v1.Pod
	held evict.Storage
}

func (w *measureStorage) do(ctx context.Context) (err error) {
	w.held, err = w.a.podUsage(ctx, w.pod)
	return err
}

func (w *measureStorage) note(x *actor, err error) {
	x.o.Storage.Since = x.now
	if err == nil {
		x.o.Storage.Held = w.held
	}
}

// evict ends the pod because the node is short of something.
func (x *actor) evict(message string) {
	if x.d.Evict != nil || x.d.Gone {
		return
	}
	x.d.Evict = &podstep.Eviction{Message: message}
	clear(x.o.Failures) // what is asked for now is another thing
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
	out := a.disk.Usage(pod)
	stats, err := a.containerStatsOf(ctx, pod)
	if err != nil {
		return out, err
	}
	for _, s := range stats {
		out.Containers[s.GetAttributes().GetMetadata().GetName()] += int64(s.GetWritableLayer().GetUsedBytes().GetValue())
	}
	return out, nil
}
