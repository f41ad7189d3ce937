package kubelet

import (
	"context"
	"errors"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/kubelet/inotify"
	"github.com/kemudi/kemudi/internal/kubelet/pod"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
)

// followManifests runs the pods of the manifests, and no longer those of files
// that have gone.
func (a *Agent) followManifests(ctx context.Context) error {
	select {
	case <-a.running:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w, err := inotify.Watch(a.manifests.Path, inotify.Closed|inotify.Moved)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		a.applyManifests(nil, nil)
		select {
		case <-w.Changed:
		case <-a.staticGone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// applyManifests starts the pods of new files and ends those of files that have
// gone. found is what the runtime has, mirrors what the API has of them, by their
// keys, when the agent begins. It is called by one goroutine at a time.
func (a *Agent) applyManifests(found map[types.UID]*runtime.Inventory, mirrors map[string]*v1.Pod) {
	if a.manifests == nil {
		return
	}
	pods, err := a.manifests.Load()
	if err != nil {
		a.o.Log.Warn("read manifests of static pods", "err", err)
		if pods == nil && errors.Is(err, os.ErrNotExist) {
			return // the directory is away: no reason to stop what runs
		}
	}
	want := map[string]bool{}
	for _, p := range pods {
		key := cache.Key(p.Namespace, p.Name)
		want[key] = true
		old := a.staticActor(key)
		if old != nil && old.UID() == p.UID {
			continue
		}
		mirror := mirrors[key]
		if mirror != nil && pod.MirrorOf(mirror) == p.UID {
			p = p.DeepCopy()
			p.Status = mirror.Status
		}
		act := a.pods.NewStatic(p, mirror, func(act *pod.Actor) { a.staticEnded(key, act) })
		a.mu.Lock()
		a.mu.statics[key] = act
		a.mu.Unlock()
		inv := found[p.UID]
		delete(found, p.UID)
		if old == nil {
			a.pods.Start(act, inv)
			continue
		}
		old.RemoveStatic()
		a.group.Go("next static pod", func(ctx context.Context) error {
			select {
			case <-old.Done():
				contain.Run(a.o.Log, "start", key, func() { a.pods.Start(act, inv) })
			case <-ctx.Done():
			}
			return nil
		})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, act := range a.mu.statics {
		if !want[key] {
			act.RemoveStatic()
		}
	}
}

func (a *Agent) staticActor(key string) *pod.Actor {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.statics[key]
}

// staticEnded takes in that nothing is left of a static pod.
func (a *Agent) staticEnded(key string, act *pod.Actor) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.statics[key] != act {
		return // another one has taken its place
	}
	delete(a.mu.statics, key)
	select {
	case a.staticGone <- struct{}{}: // its file may be back
	default: // it has been told
	}
}

// takeMirror tells the actor of a static pod what has become of its mirror. One
// that mirrors nothing is removed.
func (a *Agent) takeMirror(mirror *v1.Pod, deleted bool) {
	act := a.staticActor(cache.Key(mirror.Namespace, mirror.Name))
	switch {
	case act != nil && deleted:
		act.SawMirror(nil)
	case act != nil:
		act.SawMirror(mirror)
	case !deleted:
		a.group.Go("orphaned mirror", func(ctx context.Context) error {
			name := mirror.Namespace + "/" + mirror.Name
			contain.Run(a.o.Log, "orphaned mirror", name, func() {
				if err := a.pods.DeleteMirror(ctx, mirror); err != nil && ctx.Err() == nil {
					a.o.Log.Warn("delete mirror of a static pod that is gone", "pod", name, "err", err)
				}
			})
			return nil
		})
	}
}
