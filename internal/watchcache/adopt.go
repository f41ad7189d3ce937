package watchcache

import (
	"reflect"
	"sync"

	"github.com/kemudi/kemudi/internal/layout"
)

// likeness is how values of one type are compared, and share what is equal. It is made
// once for each type, and looks at all fields of a struct, not only at those that JSON shows.
type likeness struct {
	typ  reflect.Type
	made sync.Once

	// same reports that two values are equal to the letter, what they refer to
	// included. In doubt they are not.
	same func(a, b layout.Ptr) bool
	// adopt replaces parts of own by equal ones of first or else of second, so that
	// both refer to one copy, and reports whether all of own is in first. second may be
	// nowhere. Of what own refers to nothing is changed, but a slice whose elements are equal in part is
	// replaced by a copy that has those parts.
	adopt func(own, first, second layout.Ptr) (equal bool)
}

// likenesses holds the likeness of each type that was met: a cache of pure functions.
var likenesses sync.Map // reflect.Type to *likeness

func likenessOf(t reflect.Type) *likeness {
	l, ok := likenesses.Load(t)
	if !ok {
		l, _ = likenesses.LoadOrStore(t, &likeness{typ: t})
	}
	return l.(*likeness)
}

// ready makes what the likeness does: not before it is used, since types contain
// themselves.
func (l *likeness) ready() *likeness {
	l.made.Do(l.fill)
	return l
}

func (l *likeness) fill() {
	l.same = func(layout.Ptr, layout.Ptr) bool { return false }
	l.adopt = func(own, first, _ layout.Ptr) bool { return l.same(own, first) }
	switch l.typ.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Uint8:
		l.same = sameAt[uint8]
	case reflect.Int16, reflect.Uint16:
		l.same = sameAt[uint16]
	case reflect.Int32, reflect.Uint32:
		l.same = sameAt[uint32]
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64:
		l.same = sameAt[uint64]
	case reflect.Interface:
		l.same = func(a, b layout.Ptr) bool { return a.Value(l.typ).IsNil() && b.Value(l.typ).IsNil() }
	case reflect.String:
		l.same = sameAt[string]
		l.adopt = l.whole(func(own, other layout.Ptr) { *layout.At[string](own) = *layout.At[string](other) })
	case reflect.Pointer:
		l.same = samePointers(likenessOf(l.typ.Elem()))
		l.adopt = l.whole(func(own, other layout.Ptr) { own.SetElem(other.Elem()) })
	case reflect.Map:
		l.same = sameMaps(l.typ)
		l.adopt = l.whole(func(own, other layout.Ptr) { own.SetElem(other.Elem()) })
	case reflect.Slice:
		l.fillSlice()
	case reflect.Struct:
		l.fillStruct()
	}
}

func sameAt[T comparable](a, b layout.Ptr) bool { return *layout.At[T](a) == *layout.At[T](b) }

// whole adopts values that refer to others, as set does it.
func (l *likeness) whole(set func(own, other layout.Ptr)) func(own, first, second layout.Ptr) bool {
	return func(own, first, second layout.Ptr) bool {
		switch {
		case l.same(own, first):
			set(own, first)
			return true
		case !second.IsNil() && l.same(own, second):
			set(own, second)
		}
		return false
	}
}

func samePointers(elem *likeness) func(a, b layout.Ptr) bool {
	return func(a, b layout.Ptr) bool {
		x, y := a.Elem(), b.Elem()
		return x == y || !x.IsNil() && !y.IsNil() && elem.ready().same(x, y)
	}
}

func sameMaps(t reflect.Type) func(a, b layout.Ptr) bool {
	if t.Key().Kind() == reflect.String && t.Elem().Kind() == reflect.String {
		return sameTexts
	}
	elem := likenessOf(t.Elem())
	return func(a, b layout.Ptr) bool {
		if a.Elem() == b.Elem() {
			return true
		}
		x, y := a.Value(t), b.Value(t)
		if x.Len() != y.Len() || x.IsNil() != y.IsNil() {
			return false
		}
		p, q := layout.New(t.Elem()), layout.New(t.Elem())
		for it := x.MapRange(); it.Next(); {
			v := y.MapIndex(it.Key())
			if !v.IsValid() {
				return false
			}
			p.Value(t.Elem()).Set(it.Value())
			q.Value(t.Elem()).Set(v)
			if !elem.ready().same(p, q) {
				return false
			}
		}
		return true
	}
}

// sameTexts compares maps whose keys and values are of string kinds: all such maps
// have the same layout.
func sameTexts(a, b layout.Ptr) bool {
	if a.Elem() == b.Elem() {
		return true
	}
	x, y := *layout.At[map[string]string](a), *layout.At[map[string]string](b)
	if len(x) != len(y) || (x == nil) != (y == nil) {
		return false
	}
	for k, v := range x {
		if w, ok := y[k]; !ok || v != w {
			return false
		}
	}
	return true
}

func (l *likeness) fillSlice() {
	elem, size := likenessOf(l.typ.Elem()), l.typ.Elem().Size()
	l.same = func(a, b layout.Ptr) bool {
		x, n := a.Slice()
		y, m := b.Slice()
		if n != m || x.IsNil() != y.IsNil() {
			return false
		}
		for i := 0; i < n && x != y; i++ {
			if !elem.ready().same(x.Index(i, size), y.Index(i, size)) {
				return false
			}
		}
		return true
	}
	whole := l.whole(layout.Ptr.SetSlice)
	if l.typ.Elem().Kind() != reflect.Struct {
		l.adopt = whole
		return
	}
	l.adopt = func(own, first, second layout.Ptr) bool {
		before, n := own.Slice()
		if whole(own, first, second) {
			return true
		}
		if now, _ := own.Slice(); n == 0 || now != before {
			return false // it is empty, or second's
		}
		fresh := reflect.MakeSlice(l.typ, n, n)
		reflect.Copy(fresh, own.Value(l.typ))
		items := layout.PtrTo(fresh)
		for i := range n {
			a, b := itemAt(first, i, size), itemAt(second, i, size)
			if a.IsNil() {
				a, b = b, a
			}
			if !a.IsNil() {
				elem.ready().adopt(items.Index(i, size), a, b)
			}
		}
		own.Value(l.typ).Set(fresh)
		return false
	}
}

// itemAt is where an element of the slice at list lies; nowhere: there is none.
func itemAt(list layout.Ptr, i int, size uintptr) layout.Ptr {
	if list.IsNil() {
		return layout.Ptr{}
	}
	first, n := list.Slice()
	if i >= n {
		return layout.Ptr{}
	}
	return first.Index(i, size)
}

func (l *likeness) fillStruct() {
	type part struct {
		offset uintptr
		of     *likeness
	}
	parts, open := make([]part, l.typ.NumField()), true
	for i := range parts {
		f := l.typ.Field(i)
		parts[i] = part{f.Offset, likenessOf(f.Type)}
		open = open && f.IsExported()
	}
	l.same = func(a, b layout.Ptr) bool {
		for i := range parts {
			p := &parts[i]
			if !p.of.ready().same(a.Field(p.offset), b.Field(p.offset)) {
				return false
			}
		}
		return true
	}
	if !open {
		return // a time, a quantity: small, and its own affair
	}
	l.adopt = func(own, first, second layout.Ptr) bool {
		equal := true
		for i := range parts {
			p, other := &parts[i], layout.Ptr{}
			if !second.IsNil() {
				other = second.Field(p.offset)
			}
			equal = p.of.ready().adopt(own.Field(p.offset), first.Field(p.offset), other) && equal
		}
		return equal
	}
}
