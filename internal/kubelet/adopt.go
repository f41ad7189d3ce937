package kubelet

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/kubelet/pod"
)

// adopt starts the actors of the pods there are, and of what the runtime still
// has of pods that are not.
func (a *Agent) adopt(ctx context.Context, pods []cache.Delta) error {
	a.pods.Keep()
	found, err := a.watch.All(ctx)
	if err != nil {
		return err
	}
	slices.SortStableFunc(pods, func(x, y cache.Delta) int { // oldest first: it was here first
		return x.Now.Object.GetCreationTimestamp().Compare(y.Now.Object.GetCreationTimestamp().Time)
	})
	mirrors := map[string]*v1.Pod{}
	for _, d := range pods {
		if p := d.Now.Object.(*v1.Pod); pod.MirrorOf(p) != "" {
			mirrors[d.Now.Key] = p
		}
	}
	a.applyManifests(found, mirrors)
	for _, d := range pods {
		uid := d.Now.Object.GetUID()
		contain.Run(a.o.Log, "update", d.Now.Key, func() { a.takeOne(d, found[uid]) })
		delete(found, uid)
	}
	for uid, inv := range found {
		a.o.Log.Info("remove pod that is not in the API", "uid", uid)
		contain.Run(a.o.Log, "what is left", string(uid), func() { a.pods.StartOrphan(uid, inv) })
	}
	a.pods.Replay()
	a.disk.RemoveLeftovers(a.pods.Has)
	close(a.running)
	return nil
}
