package patch

import (
	"encoding/json"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Part is what a merge patch can change of an object: the members of the outermost
// struct that it names. Nearly all patches name one, and so need not be applied
// to a document of the rest.
type Part struct {
	from  reflect.Value // the struct
	named []bool        // of its fields
}

// PartOf finds out what a merge patch, plain or strategic, can change. It returns
// nil if that may be anything: the object is no struct, or the patch names what is
// no member of it.
func PartOf(from runtime.Object, patch []byte) *Part {
	v := reflect.ValueOf(from)
	if _, document := from.(runtime.Unstructured); document || v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil
	}
	var names map[string]json.RawMessage
	if err := json.Unmarshal(patch, &names); err != nil || names == nil {
		return nil
	}
	p := &Part{v.Elem(), make([]bool, v.Elem().NumField())}
	found := 0
	for i := range p.named {
		f := p.from.Type().Field(i)
		if !f.IsExported() {
			return nil
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" { // kind and apiVersion, which say what the object is
			p.named[i] = true
		} else if _, p.named[i] = names[name]; p.named[i] {
			found++
		}
	}
	if found < len(names) {
		return nil
	}
	return p
}

// Named returns a copy of the object that has nothing but what the patch names. It
// shares that with the object.
func (p *Part) Named() runtime.Object { return p.without(false) }

// Complete gives the patched object the rest, which is a copy.
func (p *Part) Complete(to runtime.Object) {
	rest, v := reflect.ValueOf(p.without(true).DeepCopyObject()).Elem(), reflect.ValueOf(to).Elem()
	for i, named := range p.named {
		if !named {
			v.Field(i).Set(rest.Field(i))
		}
	}
}

// without copies the struct, but for the fields that are named or that are not.
func (p *Part) without(named bool) runtime.Object {
	out := reflect.New(p.from.Type())
	for i := range p.named {
		if p.named[i] != named {
			out.Elem().Field(i).Set(p.from.Field(i))
		}
	}
	return out.Interface().(runtime.Object) // as what it is a copy of
}
