package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/resource"
)

// reference names a config map or secret that a pod uses.
type reference struct {
	def             *resource.Def
	namespace, name string
}

// interest is who is told about changes of which object. It is part of Agent.mu.
type interest struct {
	actors map[reference]map[*actor]struct{}
	caches map[*cache.Cache]bool // that are followed
}

// follow has the actor told about changes of what its pod refers to.
func (a *Agent) follow(x *actor, pod *v1.Pod) {
	for to := range core.References(pod) {
		r := reference{namespace: pod.Namespace, name: to.Name}
		switch to.Kind {
		case core.ToConfigMap:
			r.def = core.ConfigMaps.Def
		case core.ToSecret:
			r.def = core.Secrets.Def
		default:
			continue
		}
		c := a.o.Transport.Cache(r.def, only(r.namespace, r.name))
		a.mu.Lock()
		if a.mu.interest.actors[r] == nil {
			a.mu.interest.actors[r] = map[*actor]struct{}{}
		}
		a.mu.interest.actors[r][x] = struct{}{}
		known := a.mu.interest.caches[c]
		a.mu.interest.caches[c] = true
		a.mu.Unlock()
		if !known {
			part := "follow " + r.def.Plural
			a.group.Go(part, contain.Lasting(a.o.Log, part, func(ctx context.Context) error { return a.followCache(ctx, c) }))
		}
	}
}

// unfollow ends what follow began.
func (a *Agent) unfollow(x *actor) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for r, actors := range a.mu.interest.actors {
		delete(actors, x)
		if len(actors) == 0 {
			delete(a.mu.interest.actors, r)
		}
	}
}

// followCache tells actors about changes in one cache: of a single object from
// a distant server, or of all objects where the server's own cache is at hand.
func (a *Agent) followCache(ctx context.Context, c *cache.Cache) error {
	return c.Each(ctx, cache.FollowOptions{}, func(deltas []cache.Delta) error {
		for _, d := range deltas {
			obj := d.Last().Object
			a.tellChange(reference{c.Def, obj.GetNamespace(), obj.GetName()})
		}
		return nil
	})
}

func (a *Agent) tellChange(r reference) {
	a.mu.Lock()
	var told []*actor
	for x := range a.mu.interest.actors[r] {
		told = append(told, x)
	}
	a.mu.Unlock()
	for _, x := range told {
		x.post(func(x *actor) { x.sourceChanged() })
	}
}
