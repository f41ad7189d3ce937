package custom

import (
	"maps"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// Object is an object of a kind that is known at run time only. As of other kinds, an object in a
// cache or on its way to the store has no apiVersion and kind of its own ([Object.Type] tells them).
// Its methods may be called concurrently but for those that change it.
type Object struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	of     *family
	at     string // the version (C2)
	body   string // JSON; empty: tree alone has it
	tree   *tree  // of who works with the object; nil in caches (C1)
	normal string // the ID of the version that has defaulted and pruned the body as it is; empty: none has
}

// family is what all objects of a kind share.
type family struct{ group, kind string }

// tree is a body that is decoded at most once.
type tree struct {
	once   sync.Once
	fields map[string]any
}

var (
	_ resource.Document = (*Object)(nil)
	_ resource.Tree     = (*Object)(nil)
	_ wire.Appender     = (*Object)(nil)
	_ schema.ObjectKind = (*Object)(nil)
)

// New returns an empty object of a kind.
func New(apiVersion, kind string) *Object {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	return &Object{of: &family{gvk.Group, kind}, at: gvk.Version, tree: &tree{}}
}

// FromTree returns the object that an unstructured tree is, which it takes over. Its kind and
// apiVersion are set.
func FromTree(from map[string]any) (*Object, error) {
	apiVersion, _ := from["apiVersion"].(string)
	kind, _ := from["kind"].(string)
	o := New(apiVersion, kind)
	if err := o.take(from, nil); err != nil {
		return nil, err
	}
	return o, nil
}

// Type is what the object is, whether or not its own fields say so.
func (o *Object) Type() (apiVersion, kind string) {
	if o.APIVersion != "" || o.of == nil {
		return o.APIVersion, o.Kind
	}
	return schema.GroupVersion{Group: o.of.group, Version: o.at}.String(), o.of.kind
}

// Version is the version that the object is at.
func (o *Object) Version() string { return o.at }

// GetObjectKind returns the object itself.
func (o *Object) GetObjectKind() schema.ObjectKind { return o }

// SetGroupVersionKind sets or clears kind and apiVersion. Cleared, the object stays at its version.
func (o *Object) SetGroupVersionKind(gvk schema.GroupVersionKind) {
	o.TypeMeta.SetGroupVersionKind(gvk)
	if gvk.Version != "" {
		o.at = gvk.Version
	}
}

// Body is all of the object but kind, apiVersion and metadata. It is shared and read-only (C3).
func (o *Object) Body() map[string]any {
	if o.tree == nil {
		return decode(o.body)
	}
	o.tree.once.Do(func() {
		if o.tree.fields == nil {
			o.tree.fields = decode(o.body)
		}
	})
	return o.tree.fields
}

// decode reads a body, which has been found to be JSON.
func decode(body string) map[string]any {
	var fields map[string]any
	if body == "" || wire.DecodeJSON([]byte(body), &fields) != nil || fields == nil {
		return map[string]any{}
	}
	return fields
}

// SetBody sets all of the object but kind, apiVersion and metadata. It takes fields over.
func (o *Object) SetBody(fields map[string]any) {
	if fields == nil {
		fields = map[string]any{}
	}
	o.body, o.tree, o.normal = "", &tree{fields: fields}, ""
}

// Edit has change work on the body itself. The object must be the caller's own.
func (o *Object) Edit(change func(fields map[string]any)) {
	fields := o.Body()
	change(fields)
	o.SetBody(fields)
}

// JSON is the body as it is stored.
func (o *Object) JSON() ([]byte, error) {
	if o.body != "" {
		return []byte(o.body), nil
	}
	fields := o.Body()
	return wire.AppendJSON(nil, &fields)
}

// Tree is the whole object as an unstructured tree of its own, which the caller may change.
func (o *Object) Tree() map[string]any {
	var whole map[string]any
	if o.body != "" {
		whole = decode(o.body)
	} else {
		whole = runtime.DeepCopyJSON(o.Body())
	}
	return o.withHead(whole)
}

// View is the whole object as an unstructured tree that shares the body, and so is read-only below its first level.
func (o *Object) View() map[string]any {
	return o.withHead(maps.Clone(o.Body()))
}

// Bare is View without managed fields.
func (o *Object) Bare() map[string]any {
	bare := *o
	bare.ManagedFields = nil
	return bare.View()
}

// Named is View with the name alone as metadata, for who looks at the body.
func (o *Object) Named() map[string]any {
	whole := maps.Clone(o.Body())
	whole["apiVersion"], whole["kind"] = o.Type()
	whole["metadata"] = map[string]any{"name": o.Name}
	return whole
}

func (o *Object) withHead(whole map[string]any) map[string]any {
	whole["apiVersion"], whole["kind"] = o.Type()
	whole["metadata"] = o.metadata()
	return whole
}

// metadata is the metadata as a tree.
func (o *Object) metadata() map[string]any {
	doc, err := wire.AppendJSON(nil, &o.ObjectMeta)
	var m map[string]any
	if err == nil {
		err = wire.DecodeJSON(doc, &m)
	}
	if err != nil {
		m = map[string]any{"name": o.Name}
	}
	if m["creationTimestamp"] == nil {
		delete(m, "creationTimestamp")
	}
	return m
}

// DeepCopyObject copies the object. What nobody changes is shared.
func (o *Object) DeepCopyObject() runtime.Object {
	out := o.copy()
	o.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

// copy is an object with a body of its own, and shared metadata.
func (o *Object) copy() *Object {
	out := *o
	out.tree = &tree{}
	if o.body == "" {
		out.tree.fields = runtime.DeepCopyJSON(o.Body())
	}
	return &out
}

// packing are buffers in which bodies are made: how long one gets is known afterwards.
var packing = sync.Pool{New: func() any { return new([]byte) }}

// packingKept is how large a buffer may be to be used again.
const packingKept = 64 << 10

// Pack makes the bytes of the body once, while the object is still its owner's.
func (o *Object) Pack() error {
	if o.body != "" {
		return nil
	}
	buf := packing.Get().(*[]byte)
	fields := o.Body()
	doc, err := wire.AppendJSON((*buf)[:0], &fields)
	if err == nil {
		o.body = string(doc)
	}
	if *buf = doc; cap(doc) <= packingKept {
		packing.Put(buf)
	}
	return err
}

// Packed is the object as caches have it (C1). It shares everything with o.
func (o *Object) Packed() resource.Object {
	if o.tree == nil {
		return o
	}
	out := *o
	if out.Pack() != nil {
		return o // it could not be stored either
	}
	out.tree = nil
	return &out
}

// Working is a cached object for who needs its body more than once.
func (o *Object) Working() resource.Object {
	if o.tree != nil {
		return o
	}
	out := *o
	out.tree = &tree{}
	return &out
}
