package wire

import (
	"encoding/json"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/layout"
)

// Differ reports that the bytes of two objects in their canonical form are not the same, if
// that can be seen at a glance; false says nothing. What is not of the object itself
// does not count: its revision, and managedFields.
func Differ(a, b any) bool {
	t := reflect.TypeOf(a)
	if layout.Library || t != reflect.TypeOf(b) || t.Kind() != reflect.Pointer {
		return false
	}
	glance := glanceOf(t.Elem())
	return glance != nil && glance(layout.PtrOf(a), layout.PtrOf(b))
}

// glance sees that two values differ. A nil glance sees nothing in values of its type.
type glance func(a, b layout.Ptr) bool

// glances holds the glance of each type that was met: a cache of pure functions.
var glances sync.Map // reflect.Type to glance

// glanceOf returns the glance of t. A type that contains itself meets a stand-in,
// as in planOf.
func glanceOf(t reflect.Type) glance {
	if g, ok := glances.Load(t); ok {
		return g.(glance)
	}
	final := sync.OnceValue(func() glance { return makeGlance(t) })
	later := glance(func(a, b layout.Ptr) bool {
		g := final()
		return g != nil && g(a, b)
	})
	if g, loaded := glances.LoadOrStore(t, later); loaded {
		return g.(glance)
	}
	made := makeGlance(t)
	glances.Store(t, made)
	return made
}

func makeGlance(t reflect.Type) glance {
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return func(a, b layout.Ptr) bool {
			return layout.At[metav1.Time](a).Unix() != layout.At[metav1.Time](b).Unix()
		}
	case reflect.TypeFor[resource.Quantity]():
		return nil // it has many forms
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) && t.Kind() != reflect.Pointer {
		return nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return glanceAt[bool]
	case reflect.String:
		return glanceAt[string]
	case reflect.Int32:
		return glanceAt[int32]
	case reflect.Int, reflect.Int64:
		return glanceAt[int64]
	case reflect.Struct:
		return structGlance(t)
	case reflect.Pointer:
		return pointerGlance(glanceOf(t.Elem()))
	case reflect.Slice:
		return sliceGlance(glanceOf(t.Elem()), t.Elem().Size())
	case reflect.Map:
		if t.Key().Kind() == reflect.String && t.Elem().Kind() == reflect.String {
			return textsGlance
		}
	}
	return nil
}

func glanceAt[T comparable](a, b layout.Ptr) bool { return *layout.At[T](a) != *layout.At[T](b) }

// passedOver are the fields of an object's metadata that do not count.
var passedOver = map[string]bool{"resourceVersion": true, "selfLink": true, "managedFields": true}

func structGlance(t reflect.Type) glance {
	fields, err := layout.Fields(t)
	if err != nil {
		return nil
	}
	type part struct {
		offset uintptr
		glance glance
	}
	var parts []part
	_, typed := t.FieldByName("TypeMeta")
	for _, f := range fields {
		if t == reflect.TypeFor[metav1.ObjectMeta]() && passedOver[f.Name] || typed && (f.Name == "kind" || f.Name == "apiVersion") {
			continue // a kind is no part of the message
		}
		if g := glanceOf(f.Type); g != nil {
			parts = append(parts, part{f.Offset, g})
		}
	}
	return func(a, b layout.Ptr) bool {
		for i := range parts {
			if p := &parts[i]; p.glance(a.Field(p.offset), b.Field(p.offset)) {
				return true
			}
		}
		return false
	}
}

func pointerGlance(elem glance) glance {
	return func(a, b layout.Ptr) bool {
		x, y := a.Elem(), b.Elem()
		if x == y || x.IsNil() || y.IsNil() {
			return x != y
		}
		return elem != nil && elem(x, y)
	}
}

func sliceGlance(elem glance, size uintptr) glance {
	return func(a, b layout.Ptr) bool {
		x, n := a.Slice()
		y, m := b.Slice()
		if n != m {
			return true
		}
		if x == y || elem == nil {
			return false
		}
		for i := range n {
			if elem(x.Index(i, size), y.Index(i, size)) {
				return true
			}
		}
		return false
	}
}

// textsGlance compares maps whose keys and values are of string kinds: all such maps
// have the same layout.
func textsGlance(a, b layout.Ptr) bool {
	if a.Elem() == b.Elem() {
		return false
	}
	x, y := *layout.At[map[string]string](a), *layout.At[map[string]string](b)
	if len(x) != len(y) {
		return true
	}
	for k, v := range x {
		if w, ok := y[k]; !ok || v != w {
			return true
		}
	}
	return false
}
