package resource

import (
	"fmt"
	"reflect"
)

// Wire is a type that has a protobuf form, as every type of k8s.io/api does.
type Wire interface {
	Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// SameWire completes a version whose protobuf form has the same fields, under
// the same numbers, as the storage version's: converting is encoding as one and
// decoding as the other. A field that only the source knows is dropped; wrap To
// and From to keep it elsewhere.
//
//	resource.SameWire[*rbacv1beta1.Role](resource.Version[*rbacv1.Role]{Group: ..., Version: "v1beta1"})
func SameWire[L Wire, T Wire](v Version[T]) Version[T] {
	v.New = func() Object { return blank[L]() }
	v.To = func(obj Object) (T, error) { return Recode[T](obj.(L)) }
	v.From = func(obj T) (Object, error) {
		out, err := Recode[L](obj)
		if err != nil {
			return nil, err
		}
		return out, nil
	}
	return v
}

// Recode reads the protobuf form of an object as another type of the same form.
// Nothing is shared between the two.
func Recode[To Wire](from Wire) (To, error) {
	to := blank[To]()
	data, err := from.Marshal()
	if err == nil {
		err = to.Unmarshal(data)
	}
	if err != nil {
		return to, fmt.Errorf("convert %T to %T: %w", from, to, err)
	}
	return to, nil
}

// blank is a new object of a pointer type.
func blank[T Object]() T {
	return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
}
