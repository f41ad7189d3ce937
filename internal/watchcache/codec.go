package watchcache

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// magic begins a value in protobuf.
const magic = "k8s\x00"

// proto is an object that has a protobuf form, as all built-in kinds do.
type proto interface {
	Size() int
	MarshalToSizedBuffer(dst []byte) (int, error)
	Unmarshal(src []byte) error
}

// Encode returns the bytes to store for an object of the resource's own
// version. Its resourceVersion is left out (W1); obj is not changed.
func Encode(def *resource.Def, obj resource.Object) ([]byte, error) {
	if obj.GetResourceVersion() != "" || obj.GetSelfLink() != "" {
		obj = cache.AtRevision(obj, 0)
		obj.SetResourceVersion("")
		obj.SetSelfLink("")
	}
	p, ok := obj.(proto)
	if !ok {
		value, err := json.Marshal(obj)
		if err != nil {
			return nil, fmt.Errorf("encode %s %s: %w", def, obj.GetName(), err)
		}
		return value, nil
	}
	size := p.Size()
	value := make([]byte, 0, 2*len(magic)+64+len(def.Kind)+len(def.Group)+size)
	value = append(value, magic...)
	value = appendType(value, def.GVK())
	value = binary.AppendUvarint(append(value, 2<<3|2), uint64(size)) // Unknown.raw
	head := len(value)
	value = append(value, make([]byte, size)...)
	if _, err := p.MarshalToSizedBuffer(value[head:]); err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", def, obj.GetName(), err)
	}
	return append(value, "\x1a\x00\x22\x00"...), nil // Unknown's empty contentEncoding and contentType
}

// appendType appends field 1 of runtime.Unknown: the message TypeMeta, with
// apiVersion as field 1 and kind as field 2.
func appendType(dst []byte, gvk schema.GroupVersionKind) []byte {
	version := gvk.GroupVersion().String()
	var meta []byte
	for i, s := range []string{version, gvk.Kind} {
		meta = append(binary.AppendUvarint(append(meta, byte(i+1)<<3|2), uint64(len(s))), s...)
	}
	return append(binary.AppendUvarint(append(dst, 1<<3|2), uint64(len(meta))), meta...)
}

// Decode reads a stored value as an object of the resource's own version, with
// rev as its resourceVersion. A value of a legacy version is converted. Fields
// that are unset because the writer did not know them get their defaults.
func Decode(def *resource.Def, value []byte, rev int64) (resource.Object, error) {
	var obj resource.Object
	var err error
	if bytes.HasPrefix(value, []byte(magic)) {
		obj, err = decodeProto(def, value[len(magic):])
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
	var u runtime.Unknown
	if err := u.Unmarshal(value); err != nil {
		return nil, fmt.Errorf("read envelope: %w", err)
	}
	return decodeAs(def, u.TypeMeta, func(obj resource.Object) error {
		p, ok := obj.(proto)
		if !ok {
			return errors.New("is in protobuf, which the kind does not have")
		}
		return p.Unmarshal(u.Raw)
	})
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
		return kjson.UnmarshalCaseSensitivePreserveInts(value, obj)
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
