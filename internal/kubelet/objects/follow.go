package objects

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// reference names a config map or secret that a pod uses.
type reference struct {
	def             *resource.Def
	namespace, name string
}

// Follow has changed called about changes of what the pod refers to, until Unfollow.
// What it starts runs in g.
func (o *Objects) Follow(g *task.Group, pod *v1.Pod, changed func()) {
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
		c := o.t.Cache(r.def, only(r.namespace, r.name))
		o.mu.Lock()
		if o.mu.users[r] == nil {
			o.mu.users[r] = map[types.UID]func(){}
		}
		o.mu.users[r][pod.UID] = changed
		known := o.mu.caches[c]
		o.mu.caches[c] = true
		o.mu.Unlock()
		if !known {
			part := "follow " + r.def.Plural
			g.Go(part, contain.Lasting(o.log, part, func(ctx context.Context) error { return o.followCache(ctx, c) }))
		}
	}
}

// Unfollow ends what Follow began for the pod.
func (o *Objects) Unfollow(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for r, users := range o.mu.users {
		delete(users, uid)
		if len(users) == 0 {
			delete(o.mu.users, r)
		}
	}
}

// followCache tells users about changes in one cache: of a single object from
// a distant server, or of all objects where the server's own cache is at hand.
func (o *Objects) followCache(ctx context.Context, c *cache.Cache) error {
	return c.Each(ctx, cache.FollowOptions{}, func(deltas []cache.Delta) error {
		for _, d := range deltas {
			obj := d.Last().Object
			o.changed(reference{c.Def, obj.GetNamespace(), obj.GetName()})
		}
		return nil
	})
}

// changed tells the users of an object that it has changed.
func (o *Objects) changed(r reference) {
	o.mu.Lock()
	users := slices.Collect(maps.Values(o.mu.users[r]))
	o.mu.Unlock()
	for _, tell := range users {
		tell()
	}
}
