package patch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/kemudi/kemudi/internal/layout"
)

// shape is how the fields of a value are owned.
type shape uint8

const (
	leafShape  shape = iota // as a whole
	structOf                // field by field
	mapOf                   // key by key
	setOf                   // a list, value by value
	keyedSetOf              // a list, item by item, told apart by key fields
)

// node is a type of the schema met in a Go type: the plan for comparing two
// values of it field by field.
type node struct {
	shape  shape
	typ    reflect.Type // without pointers
	size   uintptr
	fields []fieldNode // structOf: sorted by name
	full   bool        // structOf: it has fields besides, and is never empty
	elem   *node       // of maps and lists
	ptrs   bool        // elements are pointers
	keys   []keyNode   // keyedSetOf: sorted by name
	equal  func(a, b layout.Ptr) bool
}

// fieldNode is one field of a struct, embedded structs' included.
type fieldNode struct {
	name   string
	label  string // `"f:name":`
	offset uintptr
	ptr    bool // the field is a pointer to what node describes
	null   bool // the field's zero value is written as null: a time
	omit   func(layout.Ptr) bool
	node   *node
}

// keyNode is one of the fields that tell a list's items apart.
type keyNode struct {
	fieldNode
	preset any // what an item without the field counts as; nil: nothing
}

// planner makes the plans of one schema.
type planner struct {
	schema *schema.Schema
	done   map[planKey]*node
}

type planKey struct {
	typ  reflect.Type
	name string
	how  schema.ElementRelationship
}

// plan returns the plan of a Go type that the schema describes by ref.
func (p *planner) plan(t reflect.Type, ref schema.TypeRef) (*node, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	key := planKey{typ: t}
	if ref.NamedType != nil {
		key.name = *ref.NamedType
	}
	if ref.ElementRelationship != nil {
		key.how = *ref.ElementRelationship
	}
	if key.name != "" {
		if n := p.done[key]; n != nil {
			return n, nil
		}
	}
	n := &node{typ: t, size: t.Size(), equal: equalOf(t)}
	if key.name != "" {
		p.done[key] = n
	}
	atom, ok := p.schema.Resolve(ref)
	if !ok {
		return nil, fmt.Errorf("schema has no type %q", key.name)
	}
	return n, p.fill(n, atom)
}

func (p *planner) fill(n *node, atom schema.Atom) error {
	t := n.typ
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()):
		if atom.Map != nil && atom.Map.ElementRelationship != schema.Atomic && atom.Scalar == nil {
			return nil // an opaque document that the schema would look into: FieldsV1, which nobody owns
		}
		return nil
	case t.Kind() == reflect.Struct && atom.Map != nil:
		if atom.Map.ElementRelationship == schema.Atomic {
			return nil
		}
		return p.fillStruct(n, atom.Map)
	case t.Kind() == reflect.Map && atom.Map != nil:
		if atom.Map.ElementRelationship == schema.Atomic {
			return nil
		}
		return p.fillMap(n, atom.Map)
	case t.Kind() == reflect.Slice && atom.List != nil:
		if atom.List.ElementRelationship != schema.Associative {
			return nil
		}
		return p.fillList(n, atom.List)
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map, t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return fmt.Errorf("schema and type %v do not fit", t)
	}
	return nil
}

func (p *planner) fillStruct(n *node, m *schema.Map) error {
	n.shape = structOf
	fields, err := layout.Fields(n.typ)
	if err != nil {
		return err
	}
	for _, f := range fields {
		if f.Quoted {
			return fmt.Errorf("%v has a scalar within a string: %s", n.typ, f.Name)
		}
		ref := m.ElementType
		if sf, ok := m.FindField(f.Name); ok {
			ref = sf.Type
		}
		elem, err := p.plan(f.Type, ref)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		n.fields = append(n.fields, fieldNode{
			name: f.Name, label: label("f:" + f.Name), offset: f.Offset, ptr: f.Type.Kind() == reflect.Pointer,
			null: f.Omit == nil && isTime(f.Type), omit: f.Omit, node: elem,
		})
	}
	slices.SortFunc(n.fields, func(a, b fieldNode) int { return strings.Compare(a.name, b.name) })
	return nil
}

// isTime reports that a type is one of those of which JSON shows null for zero.
func isTime(t reflect.Type) bool {
	return t == reflect.TypeFor[metav1.Time]() || t == reflect.TypeFor[metav1.MicroTime]()
}

// ownMetadata returns the plan of an object's own metadata, from that of
// metadata in general: without the parts that no manager has.
func ownMetadata(n *node) *node {
	own := *n
	own.full = true
	own.fields = slices.DeleteFunc(slices.Clone(n.fields), func(f fieldNode) bool { return unownable[f.name] })
	return &own
}

// unownable are the parts of an object's metadata that no manager has.
var unownable = map[string]bool{
	"name": true, "namespace": true, "creationTimestamp": true, "selfLink": true, "uid": true, "clusterName": true,
	"generation": true, "managedFields": true, "resourceVersion": true,
}

func (p *planner) fillMap(n *node, m *schema.Map) error {
	if n.typ.Key().Kind() != reflect.String {
		return fmt.Errorf("map %v has no string keys", n.typ)
	}
	n.shape, n.ptrs = mapOf, n.typ.Elem().Kind() == reflect.Pointer
	var err error
	n.elem, err = p.plan(n.typ.Elem(), m.ElementType)
	return err
}

func (p *planner) fillList(n *node, l *schema.List) error {
	n.shape, n.ptrs, n.size = setOf, n.typ.Elem().Kind() == reflect.Pointer, n.typ.Elem().Size()
	var err error
	if n.elem, err = p.plan(n.typ.Elem(), l.ElementType); err != nil || len(l.Keys) == 0 {
		return err
	}
	n.shape = keyedSetOf
	atom, ok := p.schema.Resolve(l.ElementType)
	if !ok || atom.Map == nil {
		return fmt.Errorf("items of list %v are no maps", n.typ)
	}
	items := n.elem
	if items.shape != structOf { // owned as wholes, but still told apart by their fields
		items = &node{typ: n.elem.typ}
		if err := p.fillStruct(items, atom.Map); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(slices.Values(l.Keys)) {
		i := slices.IndexFunc(items.fields, func(f fieldNode) bool { return f.name == name })
		if i < 0 {
			return fmt.Errorf("items of list %v have no field %s", n.typ, name)
		}
		k := keyNode{fieldNode: items.fields[i]}
		if sf, ok := atom.Map.FindField(name); ok && sf.Default != nil {
			k.preset = value.NewValueInterface(sf.Default).Unstructured()
		}
		n.keys = append(n.keys, k)
	}
	return nil
}

// label is a path element as the name of a JSON member. Unlike other texts it is
// not made safe for HTML: the library does not do it here.
func label(element string) string { return string(appendLabel(nil, element)) }

func appendLabel(dst []byte, element string) []byte {
	for i := range len(element) {
		if c := element[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			if err := e.Encode(element); err != nil {
				panic(err) // every string has a JSON form
			}
			return append(append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...), ':')
		}
	}
	return append(append(append(dst, '"'), element...), '"', ':')
}

// appendText appends a JSON string.
func appendText(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			b, err := json.Marshal(s)
			if err != nil {
				panic(err) // every string has a JSON form
			}
			return append(dst, b...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}
