package served

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// Resource is one resource at one group-version, with all that is the same for
// every request to it.
type Resource struct {
	Def     *resource.Def
	Version *resource.VersionDef // nil: the storage version
	GVK     schema.GroupVersionKind
	Cache   *cache.Cache // nil: the resource is not stored

	Head      []byte // `{"kind":"Pod","apiVersion":"v1"`, which a JSON object starts with
	ListHead  []byte // the same of its list
	Proto     wire.ProtoType
	ListProto wire.ProtoType
	Forms     Forms

	// End is when watches of it end; nil: it is built in, and has none. Another definition that says the
	// same of what is read has the same.
	End *End
}

// New serves a definition at a version; ver is nil for the storage version, c if nothing
// is stored.
func New(d *resource.Def, ver *resource.VersionDef, c *cache.Cache) *Resource {
	v := &Resource{Def: d, Version: ver, GVK: d.GVK(), Cache: c}
	if ver != nil {
		v.GVK.Group, v.GVK.Version = ver.Group, ver.Version
	}
	if d.Dynamic != nil {
		v.End = &End{}
	}
	apiVersion := v.GVK.GroupVersion().String()
	v.Head, v.ListHead = JSONHead(apiVersion, v.GVK.Kind), JSONHead(apiVersion, d.ListKind)
	v.Proto, v.ListProto = wire.NewProtoType(apiVersion, v.GVK.Kind), wire.NewProtoType(apiVersion, d.ListKind)
	v.Forms = newForms(v)
	return v
}

// Deprecated is what who uses the resource at its version is warned with; empty: nothing.
func (v *Resource) Deprecated() string {
	if v.Version != nil {
		return v.Version.Deprecated
	}
	return v.Def.Deprecated
}

// New returns an empty object of the version.
func (v *Resource) New() resource.Object {
	if v.Version != nil {
		return v.Version.New()
	}
	return v.Def.New()
}

// ToStorage defaults an object that a client sent, and converts it to the
// version that is stored, or, of a kind that is known at run time only, leaves it at its own. obj
// may be used up.
func (v *Resource) ToStorage(obj resource.Object) (resource.Object, error) {
	if v.live() != nil {
		v.Normalize(obj)
		return obj, nil
	}
	if v.Version != nil {
		v.Version.Default(obj)
		stored, err := v.Version.To(obj)
		if err != nil {
			return nil, err
		}
		obj = stored
	}
	v.Def.Default(obj)
	return obj, nil
}

// FromStorage shows a stored object in this version. It does not change obj,
// and the result may share its parts.
func (v *Resource) FromStorage(obj resource.Object) (resource.Object, error) {
	if v.Version == nil || v.live() != nil {
		return obj, nil
	}
	return v.Version.From(obj)
}

// live is what the version of a kind has that is known at run time only; nil of others.
func (v *Resource) live() *resource.Live {
	if v.Version == nil {
		return nil
	}
	return v.Version.Live
}

// Subresource returns the subresource if this version serves it.
func (v *Resource) Subresource(name string) *resource.SubDef {
	if v.Version != nil {
		return v.Version.Subresource(name)
	}
	return v.Def.Subresource(name)
}

// Subresources lists the subresources that this version serves.
func (v *Resource) Subresources() []*resource.SubDef {
	list := v.Def.Sub
	if v.Version != nil {
		list = v.Version.Sub
	}
	out := make([]*resource.SubDef, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// BodyGVK is the kind of a subresource's body.
func BodyGVK(b *resource.Body) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: b.Group, Version: b.Version, Kind: b.Kind}
}

// Prepare runs the version's own Prepare.
func (v *Resource) Prepare(obj, old resource.Object) {
	if v.Version != nil {
		v.Version.Prepare(obj, old)
		return
	}
	v.Def.Prepare(obj, old)
}

// GroupResource is what errors call the resource.
func (v *Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: v.GVK.Group, Resource: v.Def.Plural}
}
