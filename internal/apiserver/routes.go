package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/apiserver/discovery"
	"github.com/kemudi/kemudi/internal/apiserver/openapi"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/version"
)

// routes is everything that is served, an immutable value.
type routes struct {
	groups map[string]map[string]map[string]*served.Resource // group, version, plural
	docs   *discovery.Docs
	schema *openapi.Service
}

// newRoutes lays out the resources that o does not turn off. What was served
// before, by old, stays as it is: encodings belong to it. old may be nil.
func newRoutes(old *routes, defs []*resource.Def, o *Options) *routes {
	t := &routes{groups: map[string]map[string]map[string]*served.Resource{}}
	for _, d := range defs {
		var c *cache.Cache
		if d.Stored() {
			c = o.Caches.Cache(d)
		}
		if d.Dynamic == nil {
			t.add(old.served(d, nil, c), o)
		}
		for i := range d.Versions {
			if live := d.Versions[i].Live; live != nil && live.Unserved {
				continue
			}
			t.add(old.served(d, &d.Versions[i], c), o)
		}
	}
	t.docs = discovery.New(t.discovered())
	var before *openapi.Service
	if old != nil {
		before = old.schema
	}
	t.schema = openapi.New(before, defs, version.Git(), func(gv schema.GroupVersion) bool { return t.groups[gv.Group][gv.Version] != nil })
	return t
}

// served returns a definition at a version as it was served before, or newly made.
func (t *routes) served(d *resource.Def, ver *resource.VersionDef, c *cache.Cache) *served.Resource {
	v := served.New(d, ver, c)
	if t == nil {
		return v
	}
	was := t.lookup(v.GVK.Group, v.GVK.Version, d.Plural)
	switch {
	case was == nil || was.Cache != c:
	case was.Def == d && was.Version == ver:
		return was
	case !sameLive(was, v):
	case was.Def.Verbs == d.Verbs:
		return was
	default: // the definition goes: who watches is to hear of its objects' end
		v.End = was.End
	}
	return v
}

// endAllBut ends what now does not serve on.
func (t *routes) endAllBut(now *routes) {
	if t == nil {
		return
	}
	for group, versions := range t.groups {
		for version, plurals := range versions {
			for plural, v := range plurals {
				if next := now.lookup(group, version, plural); v.End != nil && (next == nil || next.End != v.End) {
					v.End.Come()
				}
			}
		}
	}
}

// sameLive reports that two definitions of a kind that is known at run time only say the same of the
// objects of a version: watches of it go on.
func sameLive(was, now *served.Resource) bool {
	if was.Def.Dynamic == nil || now.Def.Dynamic == nil || was.Def.Base() != now.Def.Base() {
		return false
	}
	a, b := was.Version.Live, now.Version.Live
	return a.ID != "" && a.ID == b.ID && was.Def.Dynamic.ID != "" && was.Def.Dynamic.ID == now.Def.Dynamic.ID
}

// discovered is what is served as discovery shows it.
func (t *routes) discovered() discovery.Groups {
	groups := discovery.Groups{}
	for group, versions := range t.groups {
		groups[group] = map[string]map[string]discovery.Resource{}
		for version, plurals := range versions {
			groups[group][version] = map[string]discovery.Resource{}
			for plural, v := range plurals {
				groups[group][version][plural] = discovery.Resource{
					Def: v.Def, GVK: v.GVK, Subs: v.Subresources(),
					Second: v.Version != nil && v.Version.Deprecated != "" && group != v.Def.Group,
				}
			}
		}
	}
	return groups
}

func (t *routes) add(v *served.Resource, o *Options) {
	if v.Def.Dynamic == nil && !o.enabled(v.Def, v.GVK.GroupVersion(), v.Version) {
		return
	}
	if t.groups[v.GVK.Group] == nil {
		t.groups[v.GVK.Group] = map[string]map[string]*served.Resource{}
	}
	if t.groups[v.GVK.Group][v.GVK.Version] == nil {
		t.groups[v.GVK.Group][v.GVK.Version] = map[string]*served.Resource{}
	}
	t.groups[v.GVK.Group][v.GVK.Version][v.Def.Plural] = v
}

// enabled reports whether a version of a resource is served; v is nil for the one that is stored.
func (o *Options) enabled(d *resource.Def, gv schema.GroupVersion, v *resource.VersionDef) bool {
	return discovery.Enabled(o.RuntimeConfig, &d.Names, gv, v) && o.Serving.Emulation.Serves(o.RuntimeConfig, d, v)
}

func (t *routes) lookup(group, version, plural string) *served.Resource {
	return t.groups[group][version][plural]
}

// builtIn reports whether a group has resources that are built in, at any version.
func (t *routes) builtIn(group string) bool {
	for _, plurals := range t.groups[group] {
		for _, res := range plurals {
			if res.Def.Dynamic == nil {
				return true
			}
		}
	}
	return false
}
