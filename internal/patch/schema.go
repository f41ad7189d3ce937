package patch

import (
	_ "embed" // for the schema
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// packedSchema is the schema of the libraries' kinds, as client-go has it in YAML, in a form that is read in
// two milliseconds: to read the YAML takes 100 of them and makes 20 MB of garbage, which was a third
// of what a server's start made. TestSchemaIsThatOfTheLibraries writes it and holds it against the library's.
// In it numbers are as encoding/binary has them without a sign, and texts the numbers of those that come first:
//
//	file   = count {length of a text} {texts} count {text: its name, atom}
//	atom   = flags [text: scalar] [ref: elements, text: relationship, count {text: key}]
//	              [count {text: name, ref, text: default} ref: elements, text: relationship, unions]
//	unions = count {flag: deduced, text: discriminator, count {text: field, text: value}}
//	ref    = flags [text: name of a type] [text: relationship] [atom]
//
//go:generate go test . -run TestSchemaIsThatOfTheLibraries -update
//go:embed zz_schema.bin
var packedSchema string

// What an atom has, and what a reference to a type has.
const (
	atomScalar, atomList, atomMap = 1, 2, 4

	refNamed, refRelationship, refInlined, refNullable = 1, 2, 4, 8
)

// schemaReader reads a packed schema. Its texts are parts of what is read, and each
// is there once.
type schemaReader struct {
	rest    string
	texts   []string
	scalars map[int]*smd.Scalar
}

// readSchema unpacks a schema.
func readSchema(packed string) []smd.TypeDef {
	r := schemaReader{rest: packed, scalars: map[int]*smd.Scalar{}}
	lengths := make([]int, r.number())
	for i := range lengths {
		lengths[i] = r.number()
	}
	r.texts = make([]string, len(lengths))
	for i, n := range lengths {
		r.texts[i], r.rest = r.rest[:n], r.rest[n:]
	}
	list := make([]smd.TypeDef, r.number())
	for i := range list {
		list[i].Name = r.text()
		list[i].Atom = r.atom()
	}
	return list
}

// number reads an unsigned number. There is no error: what is read is part of the program.
func (r *schemaReader) number() (n int) {
	for shift := 0; ; shift += 7 {
		b := r.rest[0]
		r.rest = r.rest[1:]
		n |= int(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
}

func (r *schemaReader) text() string { return r.texts[r.number()] }

func (r *schemaReader) atom() (a smd.Atom) {
	flags := r.number()
	if flags&atomScalar != 0 {
		a.Scalar = r.scalar()
	}
	if flags&atomList != 0 {
		a.List = &smd.List{ElementType: r.ref(), ElementRelationship: smd.ElementRelationship(r.text())}
		if n := r.number(); n > 0 {
			a.List.Keys = make([]string, n)
		}
		for i := range a.List.Keys {
			a.List.Keys[i] = r.text()
		}
	}
	if flags&atomMap != 0 {
		a.Map = &smd.Map{}
		if n := r.number(); n > 0 {
			a.Map.Fields = make([]smd.StructField, n)
		}
		for i := range a.Map.Fields {
			f := &a.Map.Fields[i]
			f.Name = r.text()
			f.Type = r.ref()
			f.Default = defaultOf(r.text())
		}
		a.Map.ElementType = r.ref()
		a.Map.ElementRelationship = smd.ElementRelationship(r.text())
		a.Map.Unions = r.unions()
	}
	return a
}

// unions reads of which fields one at most is set.
func (r *schemaReader) unions() (list []smd.Union) {
	for range r.number() {
		u := smd.Union{DeduceInvalidDiscriminator: r.number() != 0}
		if name := r.text(); name != "" {
			u.Discriminator = &name
		}
		for range r.number() {
			u.Fields = append(u.Fields, smd.UnionField{FieldName: r.text(), DiscriminatorValue: r.text()})
		}
		list = append(list, u)
	}
	return list
}

// scalar reads which one; there are few, which are shared.
func (r *schemaReader) scalar() *smd.Scalar {
	n := r.number()
	s := r.scalars[n]
	if s == nil {
		s = new(smd.Scalar)
		*s = smd.Scalar(r.texts[n])
		r.scalars[n] = s
	}
	return s
}

func (r *schemaReader) ref() (t smd.TypeRef) {
	flags := r.number()
	if flags&refNamed != 0 {
		t.NamedType = &r.texts[r.number()]
	}
	if flags&refRelationship != 0 {
		relationship := smd.ElementRelationship(r.text())
		t.ElementRelationship = &relationship
	}
	if flags&refInlined != 0 {
		t.Inlined = r.atom()
	}
	t.Nullable = flags&refNullable != 0
	return t
}

// defaultOf is the default that a text stands for: JSON, with the types that YAML has when it is decoded.
func defaultOf(text string) any {
	if text == "" {
		return nil
	}
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		panic(fmt.Sprintf("the default %q is not JSON: %v", text, err)) // it is part of the program
	}
	return asYAML(v)
}

// asYAML changes the types of decoded JSON to those of decoded YAML.
func asYAML(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		n, err := v.Float64()
		if err != nil {
			panic(fmt.Sprintf("the default %q is no number: %v", v, err))
		}
		return n
	case []any:
		for i := range v {
			v[i] = asYAML(v[i])
		}
	case map[string]any:
		out := make(map[any]any, len(v))
		for key, value := range v {
			out[key] = asYAML(value)
		}
		return out
	}
	return v
}
