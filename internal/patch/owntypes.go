package patch

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/kubernetes/scheme"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/kemudi/kemudi/internal/resource"
)

// types is the schema of the libraries' kinds, which is the same for all. Reading
// it takes some milliseconds, so it waits for the first use.
var types = sync.OnceValue(func() managedfields.TypeConverter {
	parser := &typed.Parser{}
	parser.Schema.Types = readSchema(packedSchema)
	return managedfields.NewSchemeTypeConverter(scheme.Scheme, parser)
})

// typesOf is the schema of a kind in all its versions. Where the Go type of one is our
// own, it is made from the types.
func typesOf(def *resource.Def) (managedfields.TypeConverter, error) {
	if def.Dynamic != nil {
		return dynamicTypes{def}, nil
	}
	versions := map[schema.GroupVersionKind]resource.Object{def.GVK(): def.New()}
	for _, v := range def.Versions {
		versions[schema.GroupVersionKind{Group: v.Group, Version: v.Version, Kind: def.Kind}] = v.New()
	}
	own := 0
	for gvk, obj := range versions {
		if _, ok := obj.(modelled); ok && !scheme.Scheme.Recognizes(gvk) {
			own++
		}
	}
	if own == 0 {
		return types(), nil
	}
	pod := &corev1.Pod{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	known, err := types().ObjectToTyped(pod)
	if err != nil {
		return nil, fmt.Errorf("read the schema of the libraries' kinds: %w", err)
	}
	kinds := runtime.NewScheme()
	all := ownTypes{known: known.Schema(), seen: map[string]bool{}}
	for gvk, obj := range versions {
		kinds.AddKnownTypeWithName(gvk, obj)
		all.of(reflect.TypeOf(obj).Elem())
	}
	if all.err != nil {
		return nil, fmt.Errorf("make the schema of %s: %w", def, all.err)
	}
	parser := &typed.Parser{}
	parser.Schema.Types = all.out
	return managedfields.NewSchemeTypeConverter(kinds, parser), nil
}

// modelled is a type that says by which name schemas have it.
type modelled interface{ OpenAPIModelName() string }

// ownTypes collects the schemas of Go types and of all they use.
type ownTypes struct {
	known *smd.Schema
	out   []smd.TypeDef
	seen  map[string]bool
	err   error // the first type that has no schema
}

// of is how a type is referred to.
func (o *ownTypes) of(t reflect.Type) smd.TypeRef {
	if any, ok := reflect.New(t).Interface().(schemaTyped); ok && any.OpenAPISchemaType() == nil {
		return o.untyped()
	}
	if m, ok := reflect.New(t).Interface().(modelled); ok {
		name := m.OpenAPIModelName()
		o.named(name, t)
		return smd.TypeRef{NamedType: &name}
	}
	scalar := func(s smd.Scalar) smd.TypeRef { return smd.TypeRef{Inlined: smd.Atom{Scalar: &s}} }
	switch t.Kind() {
	case reflect.Pointer:
		return o.of(t.Elem())
	case reflect.String:
		return scalar(smd.String)
	case reflect.Bool:
		return scalar(smd.Boolean)
	case reflect.Int32, reflect.Int64, reflect.Float64:
		return scalar(smd.Numeric)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return scalar(smd.String)
		}
		return smd.TypeRef{Inlined: smd.Atom{List: &smd.List{ElementType: o.of(t.Elem()), ElementRelationship: smd.Atomic}}}
	case reflect.Map:
		return smd.TypeRef{Inlined: smd.Atom{Map: &smd.Map{ElementType: o.of(t.Elem())}}}
	}
	if o.err == nil {
		o.err = fmt.Errorf("%s has no name in schemas", t)
	}
	return smd.TypeRef{}
}

// schemaTyped is a type that says itself what its JSON form is: nil, if that is any.
type schemaTyped interface{ OpenAPISchemaType() []string }

// untyped is how a value of any form is referred to, which is owned as a whole.
func (o *ownTypes) untyped() smd.TypeRef {
	name := "__untyped_atomic_"
	if def, ok := o.known.FindNamedType(name); ok && !o.seen[name] {
		o.seen[name] = true
		o.out = append(o.out, def)
		o.follow(&def.Atom)
	}
	return smd.TypeRef{NamedType: &name}
}

// named collects the schema of a type that has a name.
func (o *ownTypes) named(name string, t reflect.Type) {
	if o.seen[name] {
		return
	}
	o.seen[name] = true
	def, ok := o.known.FindNamedType(name)
	if ok {
		o.follow(&def.Atom)
	} else {
		def = smd.TypeDef{Name: name, Atom: smd.Atom{Map: &smd.Map{Fields: o.fields(t)}}}
	}
	o.out = append(o.out, def)
}

// fields are those of a struct.
func (o *ownTypes) fields(t reflect.Type) (list []smd.StructField) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if strings.Contains(options, "inline") || f.Anonymous && name == "" {
			list = append(list, o.fields(f.Type)...)
			continue
		}
		ref := o.of(f.Type)
		if key := f.Tag.Get("patchMergeKey"); ref.Inlined.List != nil && key != "" {
			ref.Inlined.List.ElementRelationship, ref.Inlined.List.Keys = smd.Associative, []string{key}
		}
		list = append(list, smd.StructField{Name: name, Type: ref})
	}
	return list
}

// follow collects what a schema of the library refers to.
func (o *ownTypes) follow(a *smd.Atom) {
	var refs []*smd.TypeRef
	if a.List != nil {
		refs = append(refs, &a.List.ElementType)
	}
	if a.Map != nil {
		refs = append(refs, &a.Map.ElementType)
		for i := range a.Map.Fields {
			refs = append(refs, &a.Map.Fields[i].Type)
		}
	}
	for _, ref := range refs {
		if ref.NamedType == nil {
			o.follow(&ref.Inlined)
		} else if def, ok := o.known.FindNamedType(*ref.NamedType); ok && !o.seen[def.Name] {
			o.seen[def.Name] = true
			o.out = append(o.out, def)
			o.follow(&def.Atom)
		}
	}
}
