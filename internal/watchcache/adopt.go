package watchcache

import "reflect"

// adopt replaces parts of own by equal ones of kept, a value of the same type, so
// that both refer to one copy, and reports whether all of own is equal. own can be
// set; of what it refers to nothing is changed, but a slice whose elements are
// equal in part is replaced by a copy that has those parts.
func adopt(own, kept reflect.Value) (equal bool) {
	switch own.Kind() {
	case reflect.Struct:
		equal = true
		for i := range own.NumField() {
			f := own.Field(i)
			if !f.CanSet() { // a time, a quantity: small, and its own affair
				return same(own, kept)
			}
			equal = adopt(f, kept.Field(i)) && equal
		}
		return equal
	case reflect.Slice:
		return adoptItems(own, kept)
	case reflect.String, reflect.Pointer, reflect.Map:
		if equal = same(own, kept); equal {
			own.Set(kept)
		}
		return equal
	}
	return same(own, kept)
}

// adoptItems does so for slices.
func adoptItems(own, kept reflect.Value) (equal bool) {
	if same(own, kept) {
		own.Set(kept)
		return true
	}
	n := min(own.Len(), kept.Len())
	if kind := own.Type().Elem().Kind(); n == 0 || kind != reflect.Struct {
		return false
	}
	fresh := reflect.MakeSlice(own.Type(), own.Len(), own.Len())
	reflect.Copy(fresh, own)
	for i := range n {
		adopt(fresh.Index(i), kept.Index(i))
	}
	own.Set(fresh)
	return false
}

// same reports that two values of one type are equal to the letter, what they refer
// to included. In doubt they are not.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.String:
		return a.String() == b.String()
	case reflect.Bool:
		return a.Bool() == b.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return a.Int() == b.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return a.Uint() == b.Uint()
	case reflect.Pointer:
		return a.Pointer() == b.Pointer() || !a.IsNil() && !b.IsNil() && same(a.Elem(), b.Elem())
	case reflect.Struct:
		for i := range a.NumField() {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		return sameItems(a, b)
	case reflect.Map:
		return sameEntries(a, b)
	case reflect.Interface:
		return a.IsNil() && b.IsNil()
	}
	return false
}

func sameItems(a, b reflect.Value) bool {
	if a.Len() != b.Len() || a.IsNil() != b.IsNil() {
		return false
	}
	if a.Pointer() == b.Pointer() {
		return true
	}
	for i := range a.Len() {
		if !same(a.Index(i), b.Index(i)) {
			return false
		}
	}
	return true
}

func sameEntries(a, b reflect.Value) bool {
	if a.Len() != b.Len() || a.IsNil() != b.IsNil() {
		return false
	}
	if a.Pointer() == b.Pointer() {
		return true
	}
	for it := a.MapRange(); it.Next(); {
		if v := b.MapIndex(it.Key()); !v.IsValid() || !same(it.Value(), v) {
			return false
		}
	}
	return true
}
