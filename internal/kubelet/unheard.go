package kubelet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/kubelet/backoff"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
)

// unheard are the pods that the runtime has something of, while it is not known whether
// the API has them: all that was known of the API may be older than they are (K2).
type unheard struct {
	mu struct {
		sync.Mutex
		pods map[types.UID]bool
	}
}

func (u *unheard) leave(found map[types.UID]*runtime.Inventory) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.pods = map[types.UID]bool{}
	for uid := range found {
		u.mu.pods[uid] = true
	}
}

// take takes the pod out, and reports whether it was among them.
func (u *unheard) take(uid types.UID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	was := u.mu.pods[uid]
	delete(u.mu.pods, uid)
	return was
}

func (u *unheard) all() []types.UID {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.mu.pods))
}

// heardOf returns what the runtime has of the pods that nothing was heard of until now, and
// has events kept if there are any, until Replay.
func (a *Agent) heardOf(ctx context.Context, deltas []cache.Delta) (found map[types.UID]*runtime.Inventory, err error) {
	for _, d := range deltas {
		if d.Now == nil || !a.unheard.take(d.Now.Object.GetUID()) || found != nil {
			continue
		}
		a.pods.Keep()
		if found, err = a.watch.All(ctx); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// removeUnknown removes what the node has of pods that the API does not have, once that is
// certain (K2).
func (a *Agent) removeUnknown(ctx context.Context) error {
	for _, c := range []<-chan struct{}{a.running, a.cache.Cache.Heard()} {
		select {
		case <-c:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	known := map[types.UID]bool{}
	for _, p := range a.cache.ByIndex("spec.nodeName", a.o.NodeName) {
		known[p.UID] = true
	}
	unknown := slices.DeleteFunc(a.unheard.all(), func(uid types.UID) bool { return known[uid] })
	if len(unknown) > 0 {
		a.pods.Keep()
		found, err := a.watch.All(ctx)
		if err != nil {
			return err
		}
		for _, uid := range unknown {
			if inv := found[uid]; inv != nil && a.unheard.take(uid) {
				a.o.Log.Info("remove pod that is not in the API", "uid", uid)
				contain.Run(a.o.Log, "what is left", string(uid), func() { a.pods.StartOrphan(uid, inv) })
			}
		}
		a.pods.Replay()
	}
	there := func(uid types.UID) bool { return known[uid] || a.pods.Has(uid) }
	a.keepDevices(ctx, there)
	return a.removeLeftovers(ctx, there)
}

// removeLeftovers removes what is on disk of pods that are not known, until that has worked: volumes wait for their drivers,
// which come after the agent.
func (a *Agent) removeLeftovers(ctx context.Context, known func(types.UID) bool) error {
	for failures := 1; ; failures++ {
		came := a.drivers.Came()
		if a.pods.Runner.Disk.RemoveLeftovers(ctx, known) {
			return nil
		}
		select {
		case <-time.After(backoff.Call.After(failures)):
		case <-came:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
