package patch

import (
	"bytes"
	"encoding/json"
	"reflect"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// equalOf returns how two values of a type are compared as wholes: by what
// their JSON forms say.
func equalOf(t reflect.Type) func(a, b unsafe.Pointer) bool {
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return func(a, b unsafe.Pointer) bool {
			x, y := (*metav1.Time)(a), (*metav1.Time)(b)
			return x.IsZero() == y.IsZero() && x.Unix() == y.Unix()
		}
	case reflect.TypeFor[metav1.MicroTime]():
		return func(a, b unsafe.Pointer) bool {
			x, y := (*metav1.MicroTime)(a), (*metav1.MicroTime)(b)
			return x.IsZero() == y.IsZero() && x.UnixMicro() == y.UnixMicro()
		}
	case reflect.TypeFor[resource.Quantity]():
		return equalQuantities
	}
	switch t.Kind() {
	case reflect.Bool:
		return func(a, b unsafe.Pointer) bool { return *(*bool)(a) == *(*bool)(b) }
	case reflect.String:
		if !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
			return func(a, b unsafe.Pointer) bool { return *(*string)(a) == *(*string)(b) }
		}
	case reflect.Int32, reflect.Uint32:
		return func(a, b unsafe.Pointer) bool { return *(*int32)(a) == *(*int32)(b) }
	case reflect.Int, reflect.Int64:
		return func(a, b unsafe.Pointer) bool { return *(*int64)(a) == *(*int64)(b) }
	}
	return func(a, b unsafe.Pointer) bool {
		x, y := reflect.NewAt(t, a), reflect.NewAt(t, b)
		if reflect.DeepEqual(x.Interface(), y.Interface()) {
			return true
		}
		i, err := json.Marshal(x.Interface())
		j, err2 := json.Marshal(y.Interface())
		return err == nil && err2 == nil && bytes.Equal(i, j)
	}
}

// equalQuantities compares the canonical forms. It works on copies: a Quantity
// remembers its text when asked for it.
func equalQuantities(a, b unsafe.Pointer) bool {
	x, y := *(*resource.Quantity)(a), *(*resource.Quantity)(b)
	var i, j [32]byte
	n1, s1 := x.CanonicalizeBytes(i[:0])
	n2, s2 := y.CanonicalizeBytes(j[:0])
	return bytes.Equal(n1, n2) && bytes.Equal(s1, s2)
}
