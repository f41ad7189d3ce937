package patch

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// What the library says of an applied document that does not fit the schema,
// and of a field that is not there.
const (
	unfit      = "failed to create typed patch object ("
	undeclared = ": field not declared in schema"
)

// tellUndeclared completes what the library has against an applied document:
// that names one unknown field of each map, whichever it happens to see first.
func (f *Fields) tellUndeclared(w Write, applied runtime.Object, err error) error {
	head, rest, ok := strings.Cut(err.Error(), "): ")
	u, isDoc := applied.(*unstructured.Unstructured)
	if !ok || !isDoc || !strings.HasPrefix(head, unfit) || !strings.Contains(rest, undeclared) {
		return err
	}
	obj, newErr := (&converter{def: w.Def}).New(w.GV.WithKind(w.Def.Kind))
	if newErr != nil {
		return err
	}
	obj.GetObjectKind().SetGroupVersionKind(w.GV.WithKind(w.Def.Kind))
	types, newErr := typesOf(w.Def)
	if newErr != nil {
		return err
	}
	typed, newErr := types.ObjectToTyped(obj)
	if newErr != nil {
		return err
	}
	s := &stranger{schema: typed.Schema()}
	s.look(typed.TypeRef(), u.Object, nil)
	for line := range strings.Lines(strings.TrimPrefix(rest, "errors:\n")) {
		if line = strings.TrimSpace(line); !slices.Contains(s.found, line) {
			s.found = append(s.found, line)
		}
	}
	if len(s.found) == 1 {
		return errors.New(head + "): " + s.found[0])
	}
	return errors.New(head + "): errors:\n  " + strings.Join(s.found, "\n  "))
}

// stranger looks for fields that a schema does not have.
type stranger struct {
	schema *schema.Schema
	found  []string
}

func (s *stranger) look(ref schema.TypeRef, v any, path fieldpath.Path) {
	atom, ok := s.schema.Resolve(ref)
	if !ok {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		if atom.Map == nil {
			return
		}
		for _, name := range sortedKeys(v) {
			here := append(path, fieldpath.PathElement{FieldName: &name})
			field, known := atom.Map.FindField(name)
			switch {
			case known:
				s.look(field.Type, v[name], here)
			case atom.Map.ElementType != schema.TypeRef{}:
				s.look(atom.Map.ElementType, v[name], here)
			default:
				s.found = append(s.found, here.String()+undeclared)
			}
		}
	case []any:
		if atom.List == nil {
			return
		}
		for i, item := range v {
			s.look(atom.List.ElementType, item, append(path, itemPath(atom.List, i, item)))
		}
	}
}

// itemPath names an item of a list by its keys, or by its place if it has none.
func itemPath(l *schema.List, i int, item any) fieldpath.PathElement {
	m, _ := item.(map[string]any)
	var keys value.FieldList
	for _, name := range l.Keys {
		if v, ok := m[name]; ok {
			keys = append(keys, value.Field{Name: name, Value: value.NewValueInterface(v)})
		}
	}
	if len(keys) == 0 {
		return fieldpath.PathElement{Index: &i}
	}
	keys.Sort()
	return fieldpath.PathElement{Key: &keys}
}
