package markers

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Prefix begins references between schemas.
const Prefix = "#/components/schemas/"

// Models are schemas by name.
type Models struct {
	Schemas map[string]*spec.Schema // of OpenAPI 3
	Swagger map[string]*spec.Schema // of version 2, where that is another
}

// Read returns the schemas of types and of all that they use. folder finds sources by
// their import path.
func Read(types []reflect.Type, folder func(pkg string) (string, error)) (*Models, error) {
	r := &reader{
		out: &Models{Schemas: map[string]*spec.Schema{}, Swagger: map[string]*spec.Schema{}}, folder: folder, sources: map[string]*source{},
	}
	for _, t := range types {
		if err := r.define(t); err != nil {
			return nil, err
		}
	}
	return r.out, nil
}

type reader struct {
	out     *Models
	folder  func(pkg string) (string, error)
	sources map[string]*source // by the package's path
}

// source is what the comments below an import path say.
func (r *reader) source(pkg string) (*source, error) {
	if s := r.sources[pkg]; s != nil {
		return s, nil
	}
	dir, err := r.folder(pkg)
	if err != nil {
		return nil, err
	}
	s, err := readSource(dir)
	r.sources[pkg] = s
	return s, err
}

// comments are that of a type, and those of its fields by name.
func (r *reader) comments(t reflect.Type) (own []string, fields map[string][]string, err error) {
	if t.PkgPath() == "" {
		return nil, nil, nil
	}
	src, err := r.source(t.PkgPath())
	if err != nil {
		return nil, nil, err
	}
	return src.types[t.Name()], src.fields[t.Name()], nil
}

// Name is the name of a type's schema.
func Name(t reflect.Type) string {
	if m, ok := reflect.New(t).Interface().(interface{ OpenAPIModelName() string }); ok {
		return m.OpenAPIModelName()
	}
	domain, rest, _ := strings.Cut(t.PkgPath(), "/")
	parts := strings.Split(domain, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(rest, "/", ".") + "." + t.Name()
}

// define makes the schema of a struct type, and of those that it uses.
func (r *reader) define(t reflect.Type) error {
	name := Name(t)
	if r.out.Schemas[name] != nil {
		return nil
	}
	own, _, err := r.comments(t)
	if err != nil {
		return err
	}
	s := &spec.Schema{SchemaProps: spec.SchemaProps{Description: description(own)}}
	r.out.Schemas[name] = s // before its fields, which may refer to it
	if err := extend(s, own); err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	unions, err := r.unions(t)
	if err != nil {
		return err
	}
	if len(unions) > 0 {
		s.AddExtension("x-kubernetes-unions", unions)
	}
	v := reflect.New(t).Interface()
	if own, ok := v.(interface {
		OpenAPISchemaType() []string
		OpenAPISchemaFormat() string
	}); ok {
		s.Type, s.Format = own.OpenAPISchemaType(), own.OpenAPISchemaFormat()
		if several, ok := v.(interface{ OpenAPIV3OneOfTypes() []string }); ok {
			swagger := *s
			swagger.Extensions = maps.Clone(s.Extensions)
			r.out.Swagger[name] = &swagger
			s.Type, s.OneOf = nil, common.GenerateOpenAPIV3OneOfSchema(several.OpenAPIV3OneOfTypes())
		}
		return nil
	}
	s.Type = []string{"object"}
	s.Properties = map[string]spec.Schema{}
	return r.members(s, t)
}

// jsonName is the name of a field in JSON, empty if it has none there; inlined: its own fields
// stand in its place.
func jsonName(f reflect.StructField) (name string, inlined bool) {
	tag, ok := f.Tag.Lookup("json")
	name, _, _ = strings.Cut(tag, ",")
	if f.Anonymous && ok && name == "" {
		return "", true
	}
	if !ok || tag == "" {
		name = f.Name
	}
	if name == "-" {
		name = ""
	}
	return name, false
}

// members adds the fields of a struct.
func (r *reader) members(s *spec.Schema, t reflect.Type) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	_, fields, err := r.comments(t)
	if err != nil {
		return err
	}
	for f := range t.Fields() {
		comment := fields[f.Name]
		name, inlined := jsonName(f)
		switch {
		case hidden(comment) || !inlined && (name == "" || !f.IsExported()):
			continue
		case inlined:
			if err := r.members(s, f.Type); err != nil {
				return err
			}
			continue
		}
		if !isOptional(comment, f.Tag.Get("json")) {
			s.Required = append(s.Required, name)
		}
		p, err := r.property(f, comment)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", name, t, err)
		}
		// The default of a kind's own constants is in the package of the struct.
		src, err := r.source(t.PkgPath())
		if err == nil {
			p.Default, err = r.byDefault(src, comment, f)
		}
		if err != nil {
			return fmt.Errorf("%s of %s: %w", name, t, err)
		}
		s.Properties[name] = *wrapped(p)
	}
	return nil
}

// property is the schema of a field, without its default.
func (r *reader) property(f reflect.StructField, comment []string) (*spec.Schema, error) {
	p := &spec.Schema{}
	if err := extend(p, comment); err != nil {
		return nil, err
	}
	e, err := r.enumOf(f.Type)
	if err != nil {
		return nil, err
	}
	p.Description = description(append(append([]string(nil), comment...), e.comment()...))
	return p, r.value(p, f.Type)
}

// value adds to a schema what is there of a type.
func (r *reader) value(s *spec.Schema, t reflect.Type) error {
	e, err := r.enumOf(t)
	if err != nil {
		return err
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if kind, format := common.OpenAPITypeFormat(simple(t)); kind != "" {
		s.Type, s.Format = []string{kind}, format
		if e != nil {
			s.Enum = e.values()
		}
		return nil
	}
	below := &spec.Schema{}
	switch t.Kind() {
	case reflect.Struct:
		s.Ref = spec.MustCreateRef(Prefix + Name(t))
		return r.define(t)
	case reflect.Slice:
		s.Type, s.Items = []string{"array"}, &spec.SchemaOrArray{Schema: below}
		return r.value(below, t.Elem())
	case reflect.Map:
		s.Type, s.AdditionalProperties = []string{"object"}, &spec.SchemaOrBool{Allows: true, Schema: below}
		return r.value(below, t.Elem())
	case reflect.Interface:
		return nil
	}
	return fmt.Errorf("cannot describe a %s", t)
}

// simple is the name of a type as the library's table of simple types has it.
func simple(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time.Time"
	case t.Kind() == reflect.Slice && t.Elem() == reflect.TypeFor[byte]():
		return "[]byte"
	case t.Kind() == reflect.Interface && t.PkgPath() == "" && t.NumMethod() == 0:
		return "interface{}"
	}
	return t.Kind().String()
}

// wrapped puts a reference that does not stand alone where it may have neighbours.
func wrapped(s *spec.Schema) *spec.Schema {
	alone := spec.Schema{SchemaProps: spec.SchemaProps{Ref: s.Ref}}
	if s.Ref.String() == "" || reflect.DeepEqual(*s, alone) {
		return s
	}
	s.Ref, s.AllOf = spec.Ref{}, []spec.Schema{alone}
	return s
}

// byDefault is the default of a field: the one in its comment, else the one in the comment of its type, else the zero
// value of Go, for fields that are always written.
func (r *reader) byDefault(src *source, comment []string, f reflect.StructField) (any, error) {
	value, err := src.defaultOf(comment)
	for t := f.Type; err == nil && value == nil; {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
			continue
		}
		if t.PkgPath() == "" {
			break
		}
		var of *source
		if of, err = r.source(t.PkgPath()); err == nil {
			value, err = of.defaultOf(of.types[t.Name()])
		}
		break
	}
	if err != nil || value != nil {
		return value, err
	}
	return always(f.Type, omitsEmpty(f.Tag.Get("json"))), nil
}

// always is what stands for a value that is never left out; nil: that is null, or can be left out.
func always(t reflect.Type, omits bool) any {
	switch t.Kind() {
	case reflect.Struct:
		if _, own := reflect.PointerTo(t).MethodByName("UnmarshalJSON"); own {
			return nil
		}
		if t.NumField() == 1 && t.Field(0).Anonymous {
			return always(t.Field(0).Type, omits)
		}
		return map[string]any{}
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface, reflect.Array:
		return nil
	}
	if omits {
		return nil
	}
	zero, _ := common.OpenAPIZeroValue(simple(t))
	return zero
}
