package wire

import (
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// member is one field of a struct's JSON form. Fields of embedded structs are
// members of the outer one.
type member struct {
	name   []byte // `"name":`
	offset uintptr
	omit   func(p unsafe.Pointer) bool // nil: never
	value  plan
}

func structPlan(t reflect.Type) plan {
	members, ok := membersOf(t, 0)
	if !ok {
		return libraryPlan(t)
	}
	return func(e *encoding, p unsafe.Pointer) {
		e.buf = append(e.buf, '{')
		first := true
		for i := range members {
			m := &members[i]
			q := unsafe.Add(p, m.offset)
			if m.omit != nil && m.omit(q) {
				continue
			}
			if !first {
				e.buf = append(e.buf, ',')
			}
			first = false
			e.buf = append(e.buf, m.name...)
			m.value(e, q)
		}
		e.buf = append(e.buf, '}')
	}
}

// membersOf lists the members of t, which lies at base within the outermost
// struct. ok is false if t uses what the plan does not know (embedded pointers,
// names that hide each other, the "string" option).
func membersOf(t reflect.Type, base uintptr) (members []member, ok bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-" || !f.IsExported() && !f.Anonymous:
			continue
		case f.Anonymous && name == "":
			if f.Type.Kind() != reflect.Struct {
				return nil, false
			}
			inner, ok := membersOf(f.Type, base+f.Offset)
			if !ok {
				return nil, false
			}
			members = append(members, inner...)
			continue
		case !f.IsExported(), hasOption(options, "string"):
			return nil, false
		}
		if name == "" {
			name = f.Name
		}
		members = append(members, member{
			name:   append(AppendString(nil, name), ':'),
			offset: base + f.Offset,
			omit:   omitter(f.Type, options),
			value:  planOf(f.Type),
		})
	}
	for i, m := range members {
		if slices.ContainsFunc(members[:i], func(x member) bool { return string(x.name) == string(m.name) }) {
			return nil, false
		}
	}
	return members, true
}

func hasOption(options, name string) bool {
	return slices.Contains(strings.Split(options, ","), name)
}

// omitter returns when a field of type t is left out; nil: never.
func omitter(t reflect.Type, options string) func(unsafe.Pointer) bool {
	empty, zero := hasOption(options, "omitempty"), hasOption(options, "omitzero")
	var whenEmpty, whenZero func(unsafe.Pointer) bool
	if empty {
		whenEmpty = isEmpty(t)
	}
	if zero {
		whenZero = isZero(t)
	}
	switch {
	case whenEmpty == nil:
		return whenZero
	case whenZero == nil:
		return whenEmpty
	}
	return func(p unsafe.Pointer) bool { return whenEmpty(p) || whenZero(p) }
}

// isEmpty is encoding/json's notion of an empty value; nil for a type that has none.
func isEmpty(t reflect.Type) func(unsafe.Pointer) bool {
	switch t.Kind() {
	case reflect.Bool:
		return func(p unsafe.Pointer) bool { return !*(*bool)(p) }
	case reflect.String:
		return func(p unsafe.Pointer) bool { return *(*string)(p) == "" }
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64:
		return func(p unsafe.Pointer) bool { return *(*int64)(p) == 0 }
	case reflect.Int32, reflect.Uint32:
		return func(p unsafe.Pointer) bool { return *(*int32)(p) == 0 }
	case reflect.Pointer:
		return func(p unsafe.Pointer) bool { return *(*unsafe.Pointer)(p) == nil }
	case reflect.Slice:
		return func(p unsafe.Pointer) bool { return (*slice)(p).len == 0 }
	case reflect.Map:
		return func(p unsafe.Pointer) bool {
			return *(*unsafe.Pointer)(p) == nil || reflect.NewAt(t, p).Elem().Len() == 0
		}
	case reflect.Struct:
		return nil
	}
	return func(p unsafe.Pointer) bool {
		v := reflect.NewAt(t, p).Elem()
		switch v.Kind() {
		case reflect.Array:
			return v.Len() == 0
		default:
			return v.IsZero()
		}
	}
}

// isZero is encoding/json's notion of a zero value: the type's own IsZero if it
// has that method.
func isZero(t reflect.Type) func(unsafe.Pointer) bool {
	type zeroer interface{ IsZero() bool }
	if reflect.PointerTo(t).Implements(reflect.TypeFor[zeroer]()) && t.Kind() == reflect.Struct {
		return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Interface().(zeroer).IsZero() }
	}
	return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Elem().IsZero() }
}
