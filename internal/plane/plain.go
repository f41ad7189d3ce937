package plane

import (
	"context"
	"maps"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/scheduler"
)

// plainPath answers at a path that is no resource.
type plainPath = func(context.Context, apiserver.PlainRequest) (any, error)

// withScheduler are further paths of the API server, with those that upstream's scheduler has on a port of its own.
func (p *Plane) withScheduler(paths map[string]plainPath) map[string]plainPath {
	paths = maps.Clone(paths)
	if paths == nil {
		paths = map[string]plainPath{}
	}
	resources := scheduler.Resources(func() *cache.Cache { return p.caches.Cache(core.Pods.Def) }, p.o.Logger.With("part", "scheduler"))
	paths["GET "+scheduler.ResourcesPath] = func(context.Context, apiserver.PlainRequest) (any, error) { return resources, nil }
	return paths
}
