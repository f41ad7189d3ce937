package wire

import (
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/layout"
)

// Canonical gives obj the form in which it comes back from its protobuf bytes:
// times in whole seconds or microseconds, and lists and maps nil or empty as
// they will be then, where JSON shows the difference (null or []). What has no
// protobuf form is left alone. What is in that form already is only read, so that obj may share
// it with others.
func Canonical(obj any) {
	o, ok := obj.(Proto)
	if !ok {
		return
	}
	if layout.Library {
		canonicalByLibrary(o)
		return
	}
	if f := fixOf(reflect.TypeOf(obj).Elem()); f != nil {
		f(layout.PtrOf(obj))
	}
}

// canonicalByLibrary does the same by way of the bytes. An object that has none
// stays as it is: who encodes it is told.
func canonicalByLibrary(obj Proto) {
	data, err := AppendProtoBody(nil, obj)
	if err != nil {
		return
	}
	v := reflect.ValueOf(obj).Elem()
	back := reflect.New(v.Type())
	if back.Interface().(Proto).Unmarshal(data) != nil {
		return
	}
	keepKinds(back.Elem(), v)
	if !reflect.DeepEqual(obj, back.Interface()) {
		v.Set(back.Elem())
	}
}

// keepKinds gives an object that was read from bytes, and those within it, the kinds of
// the one that was written: they are no part of the message.
func keepKinds(back, own reflect.Value) {
	switch own.Kind() {
	case reflect.Struct:
		if own.Type() == reflect.TypeFor[metav1.TypeMeta]() {
			back.Set(own)
			return
		}
		for i := range own.NumField() {
			if f := back.Field(i); f.CanSet() {
				keepKinds(f, own.Field(i))
			}
		}
	case reflect.Slice:
		if kind := own.Type().Elem().Kind(); kind != reflect.Struct {
			return
		}
		for i := range min(back.Len(), own.Len()) {
			keepKinds(back.Index(i), own.Index(i))
		}
	}
}

// fix makes the value of the fix's type at p canonical. It reports whether there
// was anything to do. A nil fix is of a type that has one form only.
type fix func(p layout.Ptr) (changed bool)

// fixes holds the fix of each type that was met: a cache of pure functions.
var fixes sync.Map // reflect.Type to fix

// fixOf returns the fix of t. A type that contains itself meets a stand-in, as
// in planOf.
func fixOf(t reflect.Type) fix {
	if f, ok := fixes.Load(t); ok {
		return f.(fix)
	}
	final := sync.OnceValue(func() fix { return makeFix(t) })
	later := fix(func(p layout.Ptr) bool {
		f := final()
		return f != nil && f(p)
	})
	if f, loaded := fixes.LoadOrStore(t, later); loaded {
		return f.(fix)
	}
	made := makeFix(t)
	fixes.Store(t, made)
	return made
}

func makeFix(t reflect.Type) fix {
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return func(p layout.Ptr) bool { return truncate(&layout.At[metav1.Time](p).Time, time.Second) }
	case reflect.TypeFor[metav1.MicroTime]():
		return func(p layout.Ptr) bool { return truncate(&layout.At[metav1.MicroTime](p).Time, time.Microsecond) }
	}
	switch t.Kind() {
	case reflect.Struct:
		return structFix(t)
	case reflect.Pointer:
		return pointerFix(t)
	case reflect.Slice:
		return sliceFix(t)
	case reflect.Map:
		return mapFix(t)
	}
	return nil
}

func truncate(t *time.Time, unit time.Duration) (changed bool) {
	if t.Nanosecond()%int(unit) == 0 {
		return false
	}
	*t = t.Truncate(unit)
	return true
}

func structFix(t reflect.Type) fix {
	type part struct {
		offset uintptr
		fix    fix
	}
	fields, err := layout.Fields(t)
	if err != nil {
		return nil // no kind has such a part, which the test over all kinds shows
	}
	var parts []part
	for _, f := range fields {
		if f.Omit == nil {
			if empty := emptyFix(f.Type); empty != nil {
				parts = append(parts, part{f.Offset, empty})
			}
		}
		if inner := fixOf(f.Type); inner != nil {
			parts = append(parts, part{f.Offset, inner})
		}
	}
	if parts == nil {
		return nil
	}
	return func(p layout.Ptr) (changed bool) {
		for i := range parts {
			if parts[i].fix(p.Field(parts[i].offset)) {
				changed = true
			}
		}
		return changed
	}
}

// emptyFix makes an empty list or map nil: nothing among the bytes tells of it.
// nil: the type's bytes do, as those of a list that is a message of its own.
func emptyFix(t reflect.Type) fix {
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[Proto]()):
		return nil
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return func(p layout.Ptr) bool {
			first, n := p.Slice()
			if first.IsNil() || n > 0 {
				return false
			}
			p.ClearSlice()
			return true
		}
	case t.Kind() == reflect.Map:
		return func(p layout.Ptr) bool {
			if v := p.Value(t); !v.IsNil() && v.Len() == 0 {
				v.SetZero()
				return true
			}
			return false
		}
	}
	return nil
}

func pointerFix(t reflect.Type) fix {
	elem := fixOf(t.Elem())
	if elem == nil {
		return nil
	}
	return func(p layout.Ptr) bool {
		q := p.Elem()
		return !q.IsNil() && elem(q)
	}
}

func sliceFix(t reflect.Type) fix {
	elem, size := fixOf(t.Elem()), t.Elem().Size()
	if elem == nil {
		return nil
	}
	return func(p layout.Ptr) (changed bool) {
		first, n := p.Slice()
		for i := range n {
			if elem(first.Index(i, size)) {
				changed = true
			}
		}
		return changed
	}
}

func mapFix(t reflect.Type) fix {
	elem := fixOf(t.Elem())
	if t.Elem().Kind() == reflect.Slice {
		elem = nilFix(t.Elem())
	}
	if elem == nil {
		return nil
	}
	return func(p layout.Ptr) (changed bool) {
		m := p.Value(t)
		for it := m.MapRange(); it.Next(); {
			value := layout.New(t.Elem())
			value.Value(t.Elem()).Set(it.Value())
			if elem(value) {
				m.SetMapIndex(it.Key(), value.Value(t.Elem()))
				changed = true
			}
		}
		return changed
	}
}

// nilFix makes a nil list empty: that is what a map's value comes back as.
func nilFix(t reflect.Type) fix {
	return func(p layout.Ptr) bool {
		if first, _ := p.Slice(); !first.IsNil() {
			return false
		}
		p.Value(t).Set(reflect.MakeSlice(t, 0, 0))
		return true
	}
}
