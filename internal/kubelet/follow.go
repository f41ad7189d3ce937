package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
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
	for _, r := range references(pod) {
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
			a.group.Go("follow "+r.def.Plural, func(ctx context.Context) error { return a.followCache(ctx, c) })
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
	for {
		err := c.Watch(ctx, cache.CursorOptions{FromNow: true}, func(events []cache.Event) error {
			for _, e := range events {
				a.tellChange(reference{c.Def, e.Item.Object.GetNamespace(), e.Item.Object.GetName()})
			}
			return nil
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		a.o.Log.Debug("follow objects of pods", "resource", c.Def.Plural, "err", err)
	}
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

// references lists the config maps and secrets that a pod uses.
func references(pod *v1.Pod) []reference {
	seen := map[reference]bool{}
	var out []reference
	add := func(def *resource.Def, name string) {
		r := reference{def, pod.Namespace, name}
		if name != "" && !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	for i := range pod.Spec.Volumes {
		volumeReferences(&pod.Spec.Volumes[i], add)
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			envReferences(&list[i], add)
		}
	}
	return out
}

func volumeReferences(v *v1.Volume, add func(*resource.Def, string)) {
	switch {
	case v.ConfigMap != nil:
		add(core.ConfigMaps.Def, v.ConfigMap.Name)
	case v.Secret != nil:
		add(core.Secrets.Def, v.Secret.SecretName)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				add(core.ConfigMaps.Def, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				add(core.Secrets.Def, s.Secret.Name)
			}
		}
	}
}

func envReferences(c *v1.Container, add func(*resource.Def, string)) {
	for _, f := range c.EnvFrom {
		if f.ConfigMapRef != nil {
			add(core.ConfigMaps.Def, f.ConfigMapRef.Name)
		}
		if f.SecretRef != nil {
			add(core.Secrets.Def, f.SecretRef.Name)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			add(core.ConfigMaps.Def, r.Name)
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			add(core.Secrets.Def, r.Name)
		}
	}
}
