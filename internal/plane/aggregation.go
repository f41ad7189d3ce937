package plane

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/aggregate"
	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/backend"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// aggregation makes what finds the endpoints of services, and what makes other servers part of the API.
func (p *Plane) aggregation() {
	cache := func(def *resource.Def) *cache.Cache { return p.caches.Cache(def) }
	p.backends = &backend.Services{Cache: cache}
	p.aggregator = aggregate.New(aggregate.Options{
		Cache: cache, API: p.Admin, Services: p.backends, Certificate: p.o.ProxyCertificate,
		Local: p.local, UID: p.uid, Logger: p.o.Logger.With("part", "aggregation"), Registry: p.o.Registry, Tracing: p.o.Tracing,
	})
}

// local are the group-versions that are registered as this server's. Who serves what is not registered
// itself. Neither is what is computed: other servers have that, too, and whoever installs one of them
// makes its APIService.
func (p *Plane) local() ([]aggregate.Local, <-chan struct{}) {
	defs, changed := p.kinds.Defs()
	var all []aggregate.Local
	add := func(d *resource.Def, gv schema.GroupVersion, v *resource.VersionDef) {
		l := aggregate.Local{GroupVersion: gv, Custom: !slices.Contains(p.builtIn, d)}
		if p.server.Enabled(d, v) && !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	for _, d := range defs {
		if d.Computed || d.Group == apiregistration.APIServices.Def.Group {
			continue
		}
		if d.Dynamic == nil { // else all versions are among the further ones
			add(d, d.GVK().GroupVersion(), nil)
		}
		for i := range d.Versions {
			v := &d.Versions[i]
			if v.Live != nil && v.Live.Unserved {
				continue
			}
			add(d, schema.GroupVersion{Group: v.Group, Version: v.Version}, v)
		}
	}
	slices.SortFunc(all, func(a, b aggregate.Local) int { return strings.Compare(a.String(), b.String()) })
	return all, changed
}
