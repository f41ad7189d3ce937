package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"

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

// storageOf measures what the pod holds on disk: its volumes and logs now, its
// writable layers as the runtime has last seen them.
func (a *Agent) storageOf(ctx context.Context, pod *v1.Pod) (evict.Storage, error) {
	out := a.disk.Usage(pod)
	stats, err := a.runner.Stats(ctx, pod)
	if err != nil {
		return out, err
	}
	for _, s := range stats {
		out.Containers[s.GetAttributes().GetMetadata().GetName()] += int64(s.GetWritableLayer().GetUsedBytes().GetValue())
	}
	return out, nil
}
