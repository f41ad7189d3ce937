package watchcache

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/seal"
	"github.com/kemudi/kemudi/internal/wire"
)

// Encode returns the bytes to store for an object of the resource's own
// version. Its resourceVersion is left out (W1); obj is not changed.
func Encode(def *resource.Def, obj resource.Object) ([]byte, error) {
	if obj.GetResourceVersion() != "" || obj.GetSelfLink() != "" {
		obj = cache.AtRevision(obj, 0)
		obj.SetResourceVersion("")
		obj.SetSelfLink("")
	}
	value, err := envelope(def, obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", def, obj.GetName(), err)
	}
	return value, nil
}

func envelope(def *resource.Def, obj resource.Object) ([]byte, error) {
	if d, ok := obj.(resource.Document); ok {
		return d.AppendStored(nil)
	}
	p, ok := obj.(wire.Proto)
	if !ok {
		return wire.AppendJSON(nil, obj)
	}
	t, size := wire.NewProtoType(def.GVK().GroupVersion().String(), def.Kind), p.Size()
	value := t.AppendHead(make([]byte, 0, t.Size(size)), size)
	value, err := wire.AppendSized(value, p, size)
	return t.AppendTail(value), err
}

// Read reads what the store has at a key, as Decode does. An error says whether the value could not be opened, or
// not be understood, in upstream's words.
func Read(def *resource.Def, kv store.KV) (resource.Object, error) {
	if kv.Err != nil {
		return nil, fmt.Errorf("data from the storage is not transformable revision=0: %w", kv.Err)
	}
	obj, err := Decode(def, kv.Value, kv.Rev)
	if errors.Is(err, seal.ErrSealed) {
		return nil, fmt.Errorf("data from the storage is not transformable revision=0: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("object not decodable revision=%d: %w", kv.Rev, err)
	}
	return obj, nil
}

// Decode reads a stored value as an object of the resource's own version, with
// rev as its resourceVersion. A value of a legacy version is converted. Fields
// that are unset because the writer did not know them get their defaults.
func Decode(def *resource.Def, value []byte, rev int64) (resource.Object, error) {
	var obj resource.Object
	var err error
	if seal.Sealed(value) {
		return nil, seal.ErrSealed
	}
	if def.Dynamic != nil {
		obj, err = decodeDocument(def, value)
	} else if wire.IsProto(value) {
		obj, err = decodeProto(def, value)
	} else {
		obj, err = decodeJSON(def, value)
	}
	if err != nil {
		return nil, err
	}
	def.Default(obj)
	obj.SetResourceVersion(strconv.FormatInt(rev, 10))
	return obj, nil
}

func decodeProto(def *resource.Def, value []byte) (resource.Object, error) {
	meta, raw, err := wire.OpenProto(value)
	if err != nil {
		return nil, fmt.Errorf("read envelope: %w", err)
	}
	return decodeAs(def, meta, func(obj resource.Object) error {
		p, ok := obj.(wire.Proto)
		if !ok {
			return errors.New("is in protobuf, which the kind does not have")
		}
		return p.Unmarshal(raw)
	})
}

// decodeDocument reads an object of a kind that is known at run time only, which stays at the version
// that it says.
func decodeDocument(def *resource.Def, value []byte) (resource.Object, error) {
	obj, ok := def.New().(resource.Document)
	if !ok {
		return nil, fmt.Errorf("%s has objects of a type of their own", def)
	}
	if err := obj.UnmarshalJSON(value); err != nil {
		return nil, err
	}
	if gvk := obj.GetObjectKind().GroupVersionKind(); gvk.Group != def.Group || gvk.Kind != def.Kind || gvk.Version == "" {
		return nil, fmt.Errorf("is of kind %q, want %q", gvk.GroupKind(), def.GVK().GroupKind())
	}
	return untyped(obj), nil
}

func decodeJSON(def *resource.Def, value []byte) (resource.Object, error) {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(value, &meta); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	return decodeAs(def, runtime.TypeMeta{APIVersion: meta.APIVersion, Kind: meta.Kind}, func(obj resource.Object) error {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			return u.UnmarshalJSON(value)
		}
		return wire.DecodeJSON(value, obj)
	})
}

// decodeAs reads an object of the version that the value says it has.
func decodeAs(def *resource.Def, meta runtime.TypeMeta, read func(resource.Object) error) (resource.Object, error) {
	gv, err := schema.ParseGroupVersion(meta.APIVersion)
	if err != nil {
		return nil, err
	}
	if meta.Kind != def.Kind {
		return nil, fmt.Errorf("is of kind %q, want %q", meta.Kind, def.Kind)
	}
	if gv == def.GVK().GroupVersion() {
		obj := def.New()
		if err := read(obj); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", meta.APIVersion, meta.Kind, err)
		}
		return untyped(obj), nil
	}
	for _, v := range def.Versions {
		if v.Group != gv.Group || v.Version != gv.Version {
			continue
		}
		obj := v.New()
		if err := read(obj); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", meta.APIVersion, meta.Kind, err)
		}
		v.Default(obj)
		if obj, err = v.To(obj); err != nil {
			return nil, fmt.Errorf("convert %s %s: %w", meta.APIVersion, meta.Kind, err)
		}
		return untyped(obj), nil
	}
	return nil, fmt.Errorf("is of version %q, which %s does not have", meta.APIVersion, def)
}

// untyped empties kind and apiVersion, which say nothing in a cache of one kind.
func untyped(obj resource.Object) resource.Object {
	if _, ok := obj.(*unstructured.Unstructured); !ok {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return obj
}
