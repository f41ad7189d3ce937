package openapi

import (
	"reflect"
	"strings"
	"time"

	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kemudi/kemudi/internal/resource"
)

// schemas collects the schemas of types and of all types they use, by model name.
type schemas struct {
	prefix string // of references: "#/definitions/" or "#/components/schemas/"
	byName map[string]*spec.Schema
}

func newSchemas(prefix string) *schemas {
	return &schemas{prefix: prefix, byName: map[string]*spec.Schema{}}
}

// ref returns a reference to the schema of a struct type, and collects it.
func (s *schemas) ref(t reflect.Type) *spec.Schema {
	name := modelName(t)
	if _, ok := s.byName[name]; !ok {
		s.byName[name] = nil // before its fields, which may refer to it
		s.byName[name] = s.define(t)
	}
	return &spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(s.prefix + name)}}
}

// modelName is the name of a type's schema.
func modelName(t reflect.Type) string {
	if m, ok := reflect.New(t).Interface().(interface{ OpenAPIModelName() string }); ok {
		return m.OpenAPIModelName()
	}
	path := strings.NewReplacer("k8s.io/", "io/k8s/", "/", ".").Replace(t.PkgPath())
	return path + "." + t.Name()
}

// special are types whose JSON form is not that of their fields.
var special = map[reflect.Type]spec.Schema{
	reflect.TypeFor[metav1.Time]():          text("date-time"),
	reflect.TypeFor[metav1.MicroTime]():     text("date-time"),
	reflect.TypeFor[time.Time]():            text("date-time"),
	reflect.TypeFor[metav1.Duration]():      text(""),
	reflect.TypeFor[quantity.Quantity]():    text(""),
	reflect.TypeFor[intstr.IntOrString]():   text("int-or-string"),
	reflect.TypeFor[runtime.RawExtension](): object(),
	reflect.TypeFor[metav1.FieldsV1]():      object(),
}

func text(format string) spec.Schema {
	return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}, Format: format}}
}

func object() spec.Schema {
	return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
}

// schemaTyped is a type that says itself what its JSON form is.
type schemaTyped interface {
	OpenAPISchemaType() []string
	OpenAPISchemaFormat() string
}

// define makes the schema of a struct type.
func (s *schemas) define(t reflect.Type) *spec.Schema {
	docs := documentation(t)
	if sp, ok := special[t]; ok {
		sp.Description = docs[""]
		return &sp
	}
	if own, ok := reflect.New(t).Interface().(schemaTyped); ok { // it may be of several, which is none
		sp := spec.Schema{SchemaProps: spec.SchemaProps{Description: docs[""], Type: own.OpenAPISchemaType(), Format: own.OpenAPISchemaFormat()}}
		return &sp
	}
	out := object()
	out.Description = docs[""]
	out.Properties = map[string]spec.Schema{}
	s.fields(t, docs, &out)
	return &out
}

// documentation is what the type says of itself and its fields, by JSON name.
func documentation(t reflect.Type) map[string]string {
	if d, ok := reflect.New(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		return d.SwaggerDoc()
	}
	return nil
}

func (s *schemas) fields(t reflect.Type, docs map[string]string, out *spec.Schema) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if tag == "" && (strings.Contains(options, "inline") || f.Anonymous) {
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			inner := docs
			if d := documentation(embedded); d != nil {
				inner = d
			}
			s.fields(embedded, inner, out)
			continue
		}
		p := s.value(f.Type)
		describe(p, docs[tag], f)
		out.Properties[tag] = *p
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			out.Required = append(out.Required, tag)
		}
	}
}

// oldFields adds the fields of earlier releases that documents of a kind may have:
// clients refuse to compare documents with fields they find no schema of.
func (s *schemas) oldFields(def *resource.Def, t reflect.Type) {
	for _, f := range def.OldFields {
		parent := t
		for _, name := range f.Path[:len(f.Path)-1] {
			parent = memberType(parent, name)
		}
		p := s.value(f.Type)
		describe(p, f.Description, reflect.StructField{Type: f.Type})
		s.byName[modelName(parent)].Properties[f.Path[len(f.Path)-1]] = *p
	}
}

// memberType is the struct type of a struct's field with a JSON name.
func memberType(t reflect.Type, name string) reflect.Type {
	for i := range t.NumField() {
		f := t.Field(i)
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return f.Type
		}
	}
	panic("openapi: " + t.String() + " has no field " + name)
}

// describe adds what is known of a field beyond its type. A reference cannot
// stand beside other keys, so it is wrapped.
func describe(p *spec.Schema, doc string, f reflect.StructField) {
	if p.Ref.String() != "" {
		p.AllOf = []spec.Schema{{SchemaProps: spec.SchemaProps{Ref: p.Ref}}}
		p.Ref = spec.Ref{}
	}
	p.Description = doc
	if strategy := f.Tag.Get("patchStrategy"); strategy != "" {
		p.AddExtension("x-kubernetes-patch-strategy", strategy)
	}
	if key := f.Tag.Get("patchMergeKey"); key != "" {
		p.AddExtension("x-kubernetes-patch-merge-key", key)
		p.AddExtension("x-kubernetes-list-type", "map")
		p.AddExtension("x-kubernetes-list-map-keys", []any{key})
	} else if k := f.Type.Kind(); k == reflect.Slice && f.Type.Elem().Kind() != reflect.Uint8 {
		kind := "atomic"
		if f.Tag.Get("patchStrategy") == "merge" {
			kind = "set"
		}
		p.AddExtension("x-kubernetes-list-type", kind)
	}
}

// value is the schema of a field's type.
func (s *schemas) value(t reflect.Type) *spec.Schema {
	scalar := func(kind, format string) *spec.Schema {
		return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{kind}, Format: format}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.value(t.Elem())
	case reflect.Struct:
		return s.ref(t)
	case reflect.String:
		return scalar("string", "")
	case reflect.Bool:
		return scalar("boolean", "")
	case reflect.Int32, reflect.Uint32, reflect.Int16, reflect.Uint16, reflect.Int8, reflect.Uint8:
		return scalar("integer", "int32")
	case reflect.Int64, reflect.Uint64, reflect.Int, reflect.Uint:
		return scalar("integer", "int64")
	case reflect.Float32, reflect.Float64:
		return scalar("number", "double")
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return scalar("string", "byte")
		}
		items := scalar("array", "")
		items.Items = &spec.SchemaOrArray{Schema: s.value(t.Elem())}
		return items
	case reflect.Map:
		m := object()
		m.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: s.value(t.Elem())}
		return &m
	}
	o := object()
	return &o
}
