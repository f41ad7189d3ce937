package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kemudi/kemudi/internal/wire"
)

// schemas collects the schemas that a document needs.
type schemas struct {
	form   int    // version of the document
	prefix string // of references in it
	all    *models
	marks  marks
	query  queries
	texts  map[string]json.RawMessage // of Go types, by name
	own    map[string]*spec.Schema    // of kinds without one, and of lists
}

func newSchemas(form int, all *models, m marks) *schemas {
	s := &schemas{form: form, prefix: prefix3, all: all, marks: m, query: newQueries(), texts: map[string]json.RawMessage{}, own: map[string]*spec.Schema{}}
	if form == 2 {
		s.prefix = "#/definitions/"
	}
	return s
}

// ref returns a reference to the schema of a struct type, and collects it.
func (s *schemas) ref(t reflect.Type) *spec.Schema { return s.named(modelName(t)) }

// named returns a reference to the schema of a Go type by its name, and collects it.
func (s *schemas) named(name string) *spec.Schema {
	s.collect(name)
	return s.reference(name)
}

func (s *schemas) reference(name string) *spec.Schema {
	return &spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(s.prefix + name)}}
}

// collect takes up a schema, and those that it uses.
func (s *schemas) collect(name string) {
	if _, ok := s.texts[name]; ok {
		return
	}
	text := s.all.text(name, s.form)
	if text == nil {
		text = json.RawMessage(`{"type":"object"}`) // a test holds that there is none such
	}
	s.texts[name] = text
	for _, other := range uses(text) {
		s.collect(other)
	}
}

// custom returns a reference to the schema of a kind that says itself what it has, and collects it.
func (s *schemas) custom(k *kind) *spec.Schema {
	name := customName(k.gvk.Group, k.gvk.Version, k.gvk.Kind)
	if s.own[name] == nil {
		s.ref(reflect.TypeFor[metav1.ObjectMeta]()) // which it refers to
		model := object()
		if k.live.Model != nil {
			model = k.live.Model(s.form)
		}
		s.own[name] = model
		mark(model, k.gvk)
	}
	return s.reference(name)
}

// listOf returns a reference to the schema of a kind's list.
func (s *schemas) listOf(k *kind, item *spec.Schema) *spec.Schema {
	gvk := k.gvk
	gvk.Kind = k.listKind()
	name := listName(k)
	switch {
	case s.all.Schemas[name] != nil:
		return s.named(name)
	case s.own[name] == nil:
		s.own[name] = s.listSchema(k, item)
		mark(s.own[name], gvk)
	}
	return s.reference(name)
}

// listName is the name of the schema of a kind's list.
func listName(k *kind) string {
	if k.live != nil {
		return customName(k.gvk.Group, k.gvk.Version, k.listKind())
	}
	return modelName(k.typ) + "List"
}

const conventions = "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"

// listSchema is the schema of a list of which there is no Go type.
func (s *schemas) listSchema(k *kind, item *spec.Schema) *spec.Schema {
	l := object()
	l.Description = fmt.Sprintf("%s is a list of %s", k.listKind(), k.gvk.Kind)
	items := spec.Schema{SchemaProps: spec.SchemaProps{
		Type: []string{"array"}, Description: fmt.Sprintf("List of %s. %s", k.def.Plural, conventions), Items: &spec.SchemaOrArray{Schema: item},
	}}
	meta := spec.Schema{SchemaProps: spec.SchemaProps{Description: "Standard list metadata. " + conventions + "#types-kinds"}}
	if ref := s.ref(reflect.TypeFor[metav1.ListMeta]()); s.form == 2 {
		meta.Ref = ref.Ref
	} else {
		meta.AllOf = []spec.Schema{*ref}
	}
	docs := metav1.TypeMeta{}.SwaggerDoc()
	text := func(doc string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}, Description: doc}}
	}
	l.Properties = map[string]spec.Schema{"items": items, "metadata": meta, "kind": text(docs["kind"]), "apiVersion": text(docs["apiVersion"])}
	l.Required = []string{"items"}
	return l
}

func object() *spec.Schema {
	return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
}

func plainText() *spec.Schema {
	return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}}}
}

// result is what was collected, as it stands in the document.
func (s *schemas) result() (map[string]json.RawMessage, error) {
	out := make(map[string]json.RawMessage, len(s.texts)+len(s.own))
	for name, text := range s.texts {
		if s.form == 2 {
			text = bytes.ReplaceAll(text, []byte(prefix3), []byte(s.prefix))
			text = swagger(make([]byte, 0, len(text)), text)
		}
		out[name] = s.marks.add(name, text)
	}
	for name, one := range s.own {
		text, err := json.Marshal(one)
		if err != nil {
			return nil, fmt.Errorf("make the schema %s: %w", name, err)
		}
		out[name] = text
	}
	return out, nil
}

// swagger appends a schema of OpenAPI 3 in the form of version 2: references may have neighbours there,
// and defaults are left out.
func swagger(b, text []byte) []byte {
	b = append(b, '{')
	first := true
	for name, value := range wire.Each(text) {
		if string(name) == "default" {
			continue
		}
		if ref := only(name, value); ref != nil {
			name, value = []byte("$ref"), ref
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(wire.AppendString(b, string(name)), ':')
		switch string(name) {
		case "properties":
			b = append(b, '{')
			for property, schema := range wire.Each(value) {
				b = append(wire.AppendString(b, string(property)), ':')
				b = append(swagger(b, schema), ',')
			}
			b = append(bytes.TrimSuffix(b, []byte{','}), '}')
		case "items", "additionalProperties":
			if value[0] == '{' {
				b = swagger(b, value)
				break
			}
			fallthrough
		default:
			b = append(b, value...)
		}
	}
	return append(b, '}')
}

// only is the reference of a schema that has to be as one other is.
func only(name, value []byte) (ref []byte) {
	if string(name) != "allOf" {
		return nil
	}
	for one := range wire.Elements(value) {
		if ref != nil {
			return nil
		}
		if ref = member(one, "$ref"); ref == nil {
			return nil
		}
	}
	return ref
}

// customName is the name of the model of a kind that has no Go type: "com.example.v1.Foo".
func customName(group, version, kind string) string {
	parts := strings.Split(group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, version, kind), ".")
}

// mark notes in a schema which kind it is.
func mark(s *spec.Schema, gvk schema.GroupVersionKind) {
	s.AddExtension(kindMark, []any{gvkExtension(gvk)})
}

func gvkExtension(gvk schema.GroupVersionKind) any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}
