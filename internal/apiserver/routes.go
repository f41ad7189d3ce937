package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/apiserver/discovery"
	"github.com/kemudi/kemudi/internal/apiserver/openapi"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/version"
	"github.com/kemudi/kemudi/internal/wire"
)

// served is one resource at one group-version, with all that is the same for
// every request to it.
type served struct {
	def   *resource.Def
	ver   *resource.VersionDef // nil: the storage version
	gvk   schema.GroupVersionKind
	cache *cache.Cache // nil: the resource is not stored

	apiVersion string
	jsonHead   []byte // `{"kind":"Pod","apiVersion":"v1"`, which a JSON object starts with
	listHead   []byte // the same of its list
	proto      wire.ProtoType
	listProto  wire.ProtoType
	forms      forms
}

// routes is everything that is served, an immutable value.
type routes struct {
	groups map[string]map[string]map[string]*served // group, version, plural
	docs   *discovery.Docs
	schema *openapi.Service
}

// newRoutes lays out the resources that o does not turn off. What was served
// before, by old, stays as it is: encodings belong to it. old may be nil.
func newRoutes(old *routes, defs []*resource.Def, o *Options) *routes {
	t := &routes{groups: map[string]map[string]map[string]*served{}}
	for _, d := range defs {
		var c *cache.Cache
		if d.Stored() {
			c = o.Caches.Cache(d)
		}
		t.add(old.served(d, nil, c), o.RuntimeConfig)
		for i := range d.Versions {
			t.add(old.served(d, &d.Versions[i], c), o.RuntimeConfig)
		}
	}
	t.docs = discovery.New(t.discovered())
	t.schema = openapi.New(defs, version.Git(), func(gv schema.GroupVersion) bool { return t.groups[gv.Group][gv.Version] != nil })
	return t
}

// served returns a definition at a version as it was served before, or newly made.
func (t *routes) served(d *resource.Def, ver *resource.VersionDef, c *cache.Cache) *served {
	v := newServed(d, ver, c)
	if t == nil {
		return v
	}
	if was := t.lookup(v.gvk.Group, v.gvk.Version, d.Plural); was != nil && was.def == d && was.ver == ver && was.cache == c {
		return was
	}
	return v
}

func newServed(d *resource.Def, ver *resource.VersionDef, c *cache.Cache) *served {
	v := &served{def: d, ver: ver, gvk: d.GVK(), cache: c}
	if ver != nil {
		v.gvk.Group, v.gvk.Version = ver.Group, ver.Version
	}
	v.apiVersion = v.gvk.GroupVersion().String()
	v.jsonHead, v.listHead = jsonHead(v.apiVersion, v.gvk.Kind), jsonHead(v.apiVersion, v.gvk.Kind+"List")
	v.proto, v.listProto = wire.NewProtoType(v.apiVersion, v.gvk.Kind), wire.NewProtoType(v.apiVersion, v.gvk.Kind+"List")
	v.forms = newForms(v)
	return v
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
					Def: v.def, GVK: v.gvk, Subs: v.subs(),
					Second: v.ver != nil && v.ver.Deprecated != "" && group != v.def.Group,
				}
			}
		}
	}
	return groups
}

func jsonHead(apiVersion, kind string) []byte {
	head := wire.AppendString([]byte(`{"kind":`), kind)
	return wire.AppendString(append(head, `,"apiVersion":`...), apiVersion)
}

func (t *routes) add(v *served, on map[string]bool) {
	if !discovery.Enabled(on, v.gvk.GroupVersion(), v.def.Plural) {
		return
	}
	if t.groups[v.gvk.Group] == nil {
		t.groups[v.gvk.Group] = map[string]map[string]*served{}
	}
	if t.groups[v.gvk.Group][v.gvk.Version] == nil {
		t.groups[v.gvk.Group][v.gvk.Version] = map[string]*served{}
	}
	t.groups[v.gvk.Group][v.gvk.Version][v.def.Plural] = v
}

func (t *routes) lookup(group, version, plural string) *served {
	return t.groups[group][version][plural]
}

// newObject returns an empty object of the version.
func (v *served) newObject() resource.Object {
	if v.ver != nil {
		return v.ver.New()
	}
	return v.def.New()
}

// toStorage defaults an object that a client sent, and converts it to the
// version that is stored. obj may be used up.
func (v *served) toStorage(obj resource.Object) (resource.Object, error) {
	if v.ver != nil {
		v.ver.Default(obj)
		stored, err := v.ver.To(obj)
		if err != nil {
			return nil, err
		}
		obj = stored
	}
	v.def.Default(obj)
	return obj, nil
}

// fromStorage shows a stored object in this version. It does not change obj,
// and the result may share its parts.
func (v *served) fromStorage(obj resource.Object) (resource.Object, error) {
	if v.ver == nil {
		return obj, nil
	}
	return v.ver.From(obj)
}

// sub returns the subresource if this version serves it.
func (v *served) sub(name string) *resource.SubDef {
	if v.ver != nil {
		return v.ver.Subresource(name)
	}
	return v.def.Subresource(name)
}

// subs lists the subresources that this version serves.
func (v *served) subs() []*resource.SubDef {
	list := v.def.Sub
	if v.ver != nil {
		list = v.ver.Sub
	}
	out := make([]*resource.SubDef, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// gvkOf is the kind of a subresource's body.
func gvkOf(b *resource.Body) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: b.Group, Version: b.Version, Kind: b.Kind}
}

// clearType empties the kind and apiVersion of an object, as stored and cached
// objects have them: what they are is known from where they are.
func clearType(obj runtime.Object) {
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
}
