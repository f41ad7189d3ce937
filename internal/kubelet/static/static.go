package static

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/inotify"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/kubelet/manifest"
	"github.com/kemudi/kemudi/internal/kubelet/pod"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
)

// Pods are the static pods of a node.
type Pods struct {
	// Dir has their manifests. Nil: there are none.
	Dir *manifest.Dir
	// URL is where others are published. Nil: nowhere.
	URL *manifest.URL
	Set *pod.Set // runs them
	Log *slog.Logger

	gone chan struct{} // holds a token when one of them has ended

	mu struct {
		sync.Mutex
		actors map[string]*pod.Actor // the newest ones, by the keys of their pods
	}
}

// New returns the static pods of dir and url, each of which may be nil, which set is to run.
func New(dir *manifest.Dir, url *manifest.URL, set *pod.Set, log *slog.Logger) *Pods {
	p := &Pods{Dir: dir, URL: url, Set: set, Log: log, gone: make(chan struct{}, 1)}
	p.mu.actors = map[string]*pod.Actor{}
	return p
}

// Run runs the pods of the manifests, and no longer those of files that have gone,
// after begun is closed.
func (p *Pods) Run(ctx context.Context, begun <-chan struct{}) error {
	select {
	case <-begun:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var changed <-chan struct{}
	if p.Dir != nil {
		w, err := inotify.Watch(p.Dir.Path, inotify.Closed|inotify.Moved)
		if err != nil {
			return err
		}
		defer w.Close()
		changed = w.Changed
	}
	var again <-chan time.Time
	if p.URL != nil {
		p.fetch(ctx)
		t := time.NewTicker(manifest.Every)
		defer t.Stop()
		again = t.C
	}
	for {
		p.Apply(nil, nil)
		select {
		case <-changed:
		case <-again:
			p.fetch(ctx)
		case <-p.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fetch asks the URL once more.
func (p *Pods) fetch(ctx context.Context) {
	if _, err := p.URL.Fetch(ctx); err != nil && ctx.Err() == nil {
		p.Log.Warn("read manifests of static pods", "err", err)
	}
}

// load returns the pods of all manifests; nil: the directory is away, which is no reason to stop what runs.
func (p *Pods) load() (pods []*v1.Pod) {
	if p.Dir != nil {
		var err error
		if pods, err = p.Dir.Load(); err != nil {
			p.Log.Warn("read manifests of static pods", "err", err)
			if pods == nil && errors.Is(err, os.ErrNotExist) {
				return nil
			}
		}
	}
	if p.URL == nil {
		return append([]*v1.Pod{}, pods...)
	}
	return append(append([]*v1.Pod{}, pods...), p.URL.Load()...)
}

// Apply starts the pods of new files and ends those of files that have
// gone. found is what the runtime has, mirrors what the API has of them, by their
// keys, when the agent begins. It is called by one goroutine at a time.
func (p *Pods) Apply(found map[types.UID]*runtime.Inventory, mirrors map[string]*v1.Pod) {
	if p.Dir == nil && p.URL == nil {
		return
	}
	pods := p.load()
	if pods == nil {
		return
	}
	want := map[string]bool{}
	for _, one := range pods {
		key := cache.Key(one.Namespace, one.Name)
		if want[key] {
			continue // that of the file counts
		}
		want[key] = true
		old := p.actor(key)
		if old != nil && old.UID() == one.UID {
			continue
		}
		mirror := mirrors[key]
		if mirror != nil && pod.MirrorOf(mirror) == one.UID {
			one = one.DeepCopy()
			one.Status = mirror.Status
		}
		act := p.Set.NewStatic(one, mirror, func(act *pod.Actor) { p.ended(key, act) })
		p.mu.Lock()
		p.mu.actors[key] = act
		p.mu.Unlock()
		inv := found[one.UID]
		delete(found, one.UID)
		if old == nil {
			p.Set.Start(act, inv)
			continue
		}
		old.RemoveStatic()
		p.Set.After(old, "next static pod", func() { p.Set.Start(act, inv) })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, act := range p.mu.actors {
		if !want[key] {
			act.RemoveStatic()
		}
	}
}

func (p *Pods) actor(key string) *pod.Actor {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.actors[key]
}

// ended takes in that nothing is left of a static pod.
func (p *Pods) ended(key string, act *pod.Actor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.actors[key] != act {
		return // another one has taken its place
	}
	delete(p.mu.actors, key)
	select {
	case p.gone <- struct{}{}: // its file may be back
	default: // it has been told
	}
}

// TakeMirror tells the actor of a static pod what has become of its mirror. One
// that mirrors nothing is removed.
func (p *Pods) TakeMirror(mirror *v1.Pod, deleted bool) {
	act := p.actor(cache.Key(mirror.Namespace, mirror.Name))
	switch {
	case act != nil && deleted:
		act.SawMirror(nil)
	case act != nil:
		act.SawMirror(mirror)
	case !deleted:
		p.Set.Go("orphaned mirror", func(ctx context.Context) error {
			name := mirror.Namespace + "/" + mirror.Name
			contain.Run(p.Log, "orphaned mirror", name, func() {
				if err := p.Set.DeleteMirror(ctx, mirror); err != nil && ctx.Err() == nil {
					p.Log.Warn("delete mirror of a static pod that is gone", "pod", name, "err", err)
				}
			})
			return nil
		})
	}
}
