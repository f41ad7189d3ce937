package layout

import "reflect"

// omitter returns when a field of type t is left out; nil: never.
func omitter(t reflect.Type, options string) func(Ptr) bool {
	var empty, zero func(Ptr) bool
	if hasOption(options, "omitempty") {
		empty = isEmpty(t)
	}
	if hasOption(options, "omitzero") {
		zero = isZero(t)
	}
	switch {
	case empty == nil:
		return zero
	case zero == nil:
		return empty
	}
	return func(p Ptr) bool { return empty(p) || zero(p) }
}

// isEmpty is encoding/json's notion of an empty value; nil for a type that has none.
func isEmpty(t reflect.Type) func(Ptr) bool {
	switch t.Kind() {
	case reflect.Bool:
		return func(p Ptr) bool { return !*At[bool](p) }
	case reflect.String:
		return func(p Ptr) bool { return *At[string](p) == "" }
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64:
		return func(p Ptr) bool { return *At[int64](p) == 0 }
	case reflect.Int32, reflect.Uint32:
		return func(p Ptr) bool { return *At[int32](p) == 0 }
	case reflect.Pointer:
		return func(p Ptr) bool { return p.Elem().IsNil() }
	case reflect.Slice:
		return func(p Ptr) bool {
			_, n := p.Slice()
			return n == 0
		}
	case reflect.Map:
		return func(p Ptr) bool { return p.Elem().IsNil() || p.Value(t).Len() == 0 }
	case reflect.Array:
		if t.Len() == 0 {
			return func(Ptr) bool { return true }
		}
		return nil
	case reflect.Struct:
		return nil
	}
	return func(p Ptr) bool { return p.Value(t).IsZero() }
}

// zeroer is a type with a notion of its own of what is zero.
type zeroer interface{ IsZero() bool }

// isZero is encoding/json's notion of a zero value.
func isZero(t reflect.Type) func(Ptr) bool {
	its := reflect.TypeFor[zeroer]()
	switch {
	case t.Kind() == reflect.Interface && t.Implements(its):
		return func(p Ptr) bool {
			v := p.Value(t)
			return v.IsNil() || v.Elem().Kind() == reflect.Pointer && v.Elem().IsNil() || v.Interface().(zeroer).IsZero()
		}
	case t.Kind() == reflect.Pointer && t.Implements(its):
		return func(p Ptr) bool { return p.Elem().IsNil() || p.Value(t).Interface().(zeroer).IsZero() }
	case reflect.PointerTo(t).Implements(its): // so do types that implement it themselves
		return func(p Ptr) bool { return p.Value(t).Addr().Interface().(zeroer).IsZero() }
	}
	return func(p Ptr) bool { return p.Value(t).IsZero() }
}
