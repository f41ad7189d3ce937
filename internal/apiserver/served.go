package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
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

func jsonHead(apiVersion, kind string) []byte {
	head := wire.AppendString([]byte(`{"kind":`), kind)
	return wire.AppendString(append(head, `,"apiVersion":`...), apiVersion)
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

// prepare runs the version's own Prepare.
func (v *served) prepare(obj, old resource.Object) {
	if v.ver != nil {
		v.ver.Prepare(obj, old)
		return
	}
	v.def.Prepare(obj, old)
}

func (v *served) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: v.gvk.Group, Resource: v.def.Plural}
}
