package extend

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apicel "k8s.io/apiserver/pkg/apis/cel"

	"github.com/kemudi/kemudi/internal/custom"
)

// schema is a version's schema. It is read when it is first asked for, and by the first write what
// objects are held against. It may be used concurrently.
type schema struct {
	from    *Source
	index   int                           // of the version
	shape   func() *structural.Structural // nil: there is none that could be used
	outline func() *outline               // of shape
	rules   func() *rules
}

// rules are what objects are held against when they are written.
type rules struct {
	whole, status validation.SchemaValidator
	plain         *sure                // of whole
	cel           *schemacel.Validator // nil: there are none
	err           error                // the schema could not be read
}

func newSchema(from *Source, index int) *schema {
	s := &schema{from: from, index: index}
	s.shape = sync.OnceValue(s.readShape)
	s.outline = sync.OnceValue(func() *outline { return newOutline(s.shape()) })
	s.rules = sync.OnceValue(s.readRules)
	return s
}

func (s *schema) version() *apiextensionsv1.CustomResourceDefinitionVersion {
	return s.from.version(s.index)
}

// props is the schema as the library reads it; nil: there is none.
func props(v *apiextensionsv1.CustomResourceDefinitionVersion) (*apiextensions.JSONSchemaProps, error) {
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return nil, nil
	}
	var out apiextensions.CustomResourceValidation
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(v.Schema, &out, nil); err != nil {
		return nil, fmt.Errorf("read the schema of version %s: %w", v.Name, err)
	}
	return out.OpenAPIV3Schema, nil
}

// readShape reads a schema that has been validated, or is kept from a time when it was not: such a one
// may have no structure that objects could be pruned and defaulted by.
func (s *schema) readShape() *structural.Structural {
	in, err := props(s.version())
	if in == nil || err != nil {
		return nil
	}
	shape, err := structural.NewStructural(in)
	if err != nil {
		return nil
	}
	if !s.from.crd.Load().Spec.PreserveUnknownFields {
		shape = shape.DeepCopy() // it shares its defaults with the definition
		if defaulting.PruneDefaults(shape) != nil {
			return nil
		}
	}
	return shape
}

func (s *schema) readRules() *rules {
	in, err := props(s.version())
	if err != nil {
		return &rules{err: err}
	}
	r := &rules{}
	if r.whole, _, r.err = validation.NewSchemaValidator(in); r.err != nil {
		return r
	}
	if sub := s.version().Subresources; in != nil && sub != nil && sub.Status != nil {
		if status, ok := in.Properties["status"]; ok {
			if r.status, _, r.err = validation.NewSchemaValidator(&status); r.err != nil {
				return r
			}
		}
	}
	r.plain = newSure(s.shape())
	began := time.Now()
	if r.cel = schemacel.NewValidator(s.shape(), true, apicel.PerCallLimit); r.cel != nil {
		s.from.measure.Compiled(began)
	}
	return r
}

// fill sets what is unset and has a default.
func (s *schema) fill(obj *custom.Object) {
	if shape := s.shape(); s.outline().defaults {
		obj.Edit(func(body map[string]any) { defaulting.Default(body, shape) })
	}
}

// prune drops what the schema does not know, and what is null and may not be.
func (s *schema) prune(obj *custom.Object) {
	shape := s.shape()
	if shape == nil {
		return
	}
	known, nulls := s.outline().knows(obj.Body())
	if known && !nulls {
		return
	}
	obj.Edit(func(body map[string]any) {
		if known {
			defaulting.PruneNonNullableNullsWithoutDefaults(body, shape)
			return
		}
		pruning.Prune(body, shape, true)
		defaulting.PruneNonNullableNullsWithoutDefaults(body, shape)
		// What is no metadata of an embedded object is refused by malformed if clients send it; what is stored goes.
		_ = objectmeta.Coerce(nil, body, shape, false, true)
	})
}

// unknown are the fields that prune would drop.
func (s *schema) unknown(obj *custom.Object) []string {
	shape := s.shape()
	if shape == nil {
		return nil
	}
	if known, _ := s.outline().knows(obj.Body()); known {
		return nil
	}
	tree := obj.Tree()
	paths := pruning.PruneWithOptions(tree, shape, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	_, embedded := objectmeta.CoerceWithOptions(nil, tree, shape, false, objectmeta.CoerceOptions{DropInvalidFields: true, ReturnUnknownFieldPaths: true})
	var out []string
	for _, path := range append(paths, embedded...) {
		out = append(out, fmt.Sprintf("unknown field %q", path))
	}
	return out
}

// malformed refuses metadata, kind or apiVersion of an embedded object that are not of their types.
func (s *schema) malformed(obj *custom.Object) error {
	if !s.outline().embedded {
		return nil
	}
	if wrong := objectmeta.Coerce(nil, obj.Tree(), s.shape(), false, false); wrong != nil {
		return wrong
	}
	return nil
}
