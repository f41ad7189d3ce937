package watchcache

import "reflect"

// adopt replaces parts of own by equal ones of first or else of second, values of
// the same type, so that both refer to one copy, and reports whether all of own is in
// first. second may be no value. own can be set; of what it refers to nothing is
// changed, but a slice whose elements are equal in part is replaced by a copy that has
// those parts.
func adopt(own, first, second reflect.Value) (equal bool) {
	switch own.Kind() {
	case reflect.Struct:
		equal = true
		for i := range own.NumField() {
			f := own.Field(i)
			if !f.CanSet() { // a time, a quantity: small, and its own affair
				return same(own, first)
			}
			var other reflect.Value
			if second.IsValid() {
				other = second.Field(i)
			}
			equal = adopt(f, first.Field(i), other) && equal
		}
		return equal
	case reflect.String, reflect.Pointer, reflect.Map, reflect.Slice:
		switch {
		case same(own, first):
			own.Set(first)
			return true
		case second.IsValid() && same(own, second):
			own.Set(second)
		case own.Kind() == reflect.Slice && own.Len() > 0 && own.Type().Elem().Kind() == reflect.Struct:
			adoptItems(own, first, second)
		}
		return false
	}
	return same(own, first)
}

// adoptItems does so with the elements of a slice that is not equal as a whole.
func adoptItems(own, first, second reflect.Value) {
	fresh := reflect.MakeSlice(own.Type(), own.Len(), own.Len())
	reflect.Copy(fresh, own)
	for i := range own.Len() {
		a, b := itemAt(first, i), itemAt(second, i)
		if !a.IsValid() {
			a, b = b, a
		}
		if a.IsValid() {
			adopt(fresh.Index(i), a, b)
		}
	}
	own.Set(fresh)
}

// itemAt is the element of a slice, or no value.
func itemAt(list reflect.Value, i int) reflect.Value {
	if !list.IsValid() || i >= list.Len() {
		return reflect.Value{}
	}
	return list.Index(i)
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
