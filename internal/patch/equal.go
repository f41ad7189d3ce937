package patch

import (
	"bytes"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/layout"
)

// equalOf returns how two values of a type are compared as wholes: by what
// their JSON forms say.
func equalOf(t reflect.Type) func(a, b layout.Ptr) bool {
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return func(a, b layout.Ptr) bool {
			x, y := layout.At[metav1.Time](a), layout.At[metav1.Time](b)
			return x.IsZero() == y.IsZero() && x.Unix() == y.Unix()
		}
	case reflect.TypeFor[metav1.MicroTime]():
		return func(a, b layout.Ptr) bool {
			x, y := layout.At[metav1.MicroTime](a), layout.At[metav1.MicroTime](b)
			return x.IsZero() == y.IsZero() && x.UnixMicro() == y.UnixMicro()
		}
	case reflect.TypeFor[resource.Quantity]():
		return equalQuantities
	}
	switch t.Kind() {
	case reflect.Bool:
		return func(a, b layout.Ptr) bool { return *layout.At[bool](a) == *layout.At[bool](b) }
	case reflect.String:
		if !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
			return func(a, b layout.Ptr) bool { return *layout.At[string](a) == *layout.At[string](b) }
		}
	case reflect.Int32, reflect.Uint32:
		return func(a, b layout.Ptr) bool { return *layout.At[int32](a) == *layout.At[int32](b) }
	case reflect.Int, reflect.Int64:
		return func(a, b layout.Ptr) bool { return *layout.At[int64](a) == *layout.At[int64](b) }
	}
	return func(a, b layout.Ptr) bool {
		x, y := a.Value(t).Addr(), b.Value(t).Addr()
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
func equalQuantities(a, b layout.Ptr) bool {
	x, y := *layout.At[resource.Quantity](a), *layout.At[resource.Quantity](b)
	var i, j [32]byte
	n1, s1 := x.CanonicalizeBytes(i[:0])
	n2, s2 := y.CanonicalizeBytes(j[:0])
	return bytes.Equal(n1, n2) && bytes.Equal(s1, s2)
}
