package patch

import (
	"errors"
	"fmt"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/kemudi/kemudi/internal/resource"
)

// Merged is an object with a part of one merged into it as apply does it, but nobody comes to own
// anything. live and part have the same apiVersion and kind, one of def's or of the body of one of its
// subresources. A part that would replace a list, a map or a struct as a whole is refused.
func Merged(def *resource.Def, live runtime.Object, part map[string]any) (map[string]any, error) {
	types, err := typesIn(def, live.GetObjectKind().GroupVersionKind())
	if err != nil {
		return nil, err
	}
	applied := &unstructured.Unstructured{Object: part}
	applied.SetGroupVersionKind(live.GetObjectKind().GroupVersionKind())
	patch, err := types.ObjectToTyped(applied)
	if err != nil {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	if whole := wholes(nil, patch.Schema(), patch.TypeRef(), patch.AsValue()); len(whole) > 0 {
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %s", strings.Join(whole, ", "))
	}
	was, err := types.ObjectToTyped(live, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	is, err := was.Merge(patch)
	if err != nil {
		return nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	obj, err := types.TypedToObject(is)
	if err != nil {
		return nil, fmt.Errorf("failed to convert typed object to object: %w", err)
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("failed to convert typed object to object: got a %T", obj)
	}
	return u.Object, nil
}

// typesIn reads objects of a kind: def's at one of its versions, or a Scale, of which the schema of
// kinds knows nothing.
func typesIn(def *resource.Def, gvk schema.GroupVersionKind) (managedfields.TypeConverter, error) {
	if def.Dynamic == nil && gvk.Kind == def.Kind {
		return typesOf(def)
	}
	if v := def.VersionNamed(gvk.Version); gvk.Kind == def.Kind && v != nil && v.Live != nil && v.Live.Types != nil {
		return v.Live.Types, nil
	}
	return managedfields.NewDeducedTypeConverter(), nil
}

// wholes are the paths in a value of what is only ever replaced as a whole.
func wholes(at fieldpath.Path, s *smdschema.Schema, t smdschema.TypeRef, v value.Value) (paths []string) {
	atom, ok := s.Resolve(t)
	if !ok {
		return nil
	}
	switch {
	case v.IsMap() && atom.Map != nil:
		if atom.Map.ElementRelationship == smdschema.Atomic {
			paths = append(paths, at.String())
		}
		v.AsMap().Iterate(func(key string, member value.Value) bool {
			of := atom.Map.ElementType
			if f, ok := atom.Map.FindField(key); ok {
				of = f.Type
			}
			paths = append(paths, wholes(append(at, fieldpath.PathElement{FieldName: &key}), s, of, member)...)
			return true
		})
	case v.IsList() && atom.List != nil:
		if atom.List.ElementRelationship == smdschema.Atomic {
			paths = append(paths, at.String())
		}
		list := v.AsList()
		for i := range list.Length() {
			paths = append(paths, wholes(append(at, fieldpath.PathElement{Index: &i}), s, atom.List.ElementType, list.At(i))...)
		}
	}
	return paths
}

// Operated is a JSON document after a JSON patch; it is the document itself if one of the patch's
// tests fails. Errors are the library's.
func Operated(doc, patch []byte) ([]byte, error) {
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	if len(p) > maxOperations {
		return nil, fmt.Errorf("the allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(p))
	}
	out, err := p.Apply(doc)
	if errors.Is(err, jsonpatch.ErrTestFailed) {
		return doc, nil
	}
	return out, err
}
