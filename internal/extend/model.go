package extend

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Form is the version of OpenAPI that a model is for.
type Form int

// The forms.
const (
	Swagger  Form = 2
	OpenAPI3 Form = 3
)

// prefix begins references of the form.
func (f Form) prefix() string {
	if f == Swagger {
		return "#/definitions/"
	}
	return "#/components/schemas/"
}

// objectMeta is the name of the model of metadata.
const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// ModelName is the name of the model of a kind: "com.example.v1.Foo".
func ModelName(group, version, kind string) string {
	parts := strings.Split(group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, version, kind), ".")
}

// Model is the schema of a version as documents have it: with metadata, and without what clients of the form
// would refuse good objects by. It is the caller's own.
func Model(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion, form Form) *spec.Schema {
	out := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	shape := publishable(v)
	open := form == Swagger && shape != nil && (shape.XPreserveUnknownFields || crd.Spec.PreserveUnknownFields)
	if shape != nil && !open {
		if form == Swagger {
			shape = forSwagger(shape)
		}
		out = shape.ToKubeOpenAPI()
		addType(out, typeDocs["apiVersion"], typeDocs["kind"])
		addMetadata(out, form)
		addEmbedded(out, form)
	}
	out.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": crd.Spec.Group, "version": v.Name, "kind": crd.Spec.Names.Kind}})
	if len(v.SelectableFields) > 0 {
		var list []any
		for _, f := range v.SelectableFields {
			list = append(list, map[string]any{"fieldPath": strings.TrimPrefix(f.JSONPath, ".")})
		}
		out.AddExtension("x-kubernetes-selectable-fields", list)
	}
	return out
}

// publishable is the structure of a schema that documents can show; nil: there is none.
func publishable(v *apiextensionsv1.CustomResourceDefinitionVersion) *structural.Structural {
	in, err := props(v)
	if in == nil || err != nil || validation.SchemaHasInvalidTypes(in) {
		return nil
	}
	return structureOf(in)
}

func structureOf(in *apiextensions.JSONSchemaProps) *structural.Structural {
	shape, err := structural.NewStructural(in)
	if err != nil || len(structural.ValidateStructural(nil, shape)) > 0 {
		return nil
	}
	return shape.Unfold()
}

var (
	typeDocs = map[string]string{
		"apiVersion": metav1.TypeMeta{}.SwaggerDoc()["apiVersion"],
		"kind":       metav1.TypeMeta{}.SwaggerDoc()["kind"],
	}
	metadataDoc = metav1beta1.PartialObjectMetadata{}.SwaggerDoc()["metadata"]
)

const (
	conventions    = "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
	apiVersionText = "apiVersion defines the versioned schema of this representation of an object. " + conventions + "#resources"
	kindText       = "kind is a string value representing the type of this object. In CamelCase. " + conventions + "#types-kinds"
)

// addType adds the fields that say what an object is.
func addType(s *spec.Schema, apiVersion, kind string) {
	for name, doc := range map[string]string{"apiVersion": apiVersion, "kind": kind} {
		s.SetProperty(name, spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}, Description: doc}})
	}
}

// addMetadata adds the metadata of all objects. A reference stands alone in OpenAPI 3.
func addMetadata(s *spec.Schema, form Form) {
	ref := spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(form.prefix() + objectMeta)}}
	if form == OpenAPI3 {
		ref = spec.Schema{SchemaProps: spec.SchemaProps{AllOf: []spec.Schema{ref}}}
	}
	ref.Description = metadataDoc
	s.SetProperty("metadata", ref)
}

// addEmbedded adds to objects within the object what all objects have.
func addEmbedded(s *spec.Schema, form Form) {
	if s == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		addEmbedded(&p, form)
		s.Properties[name] = p
	}
	if s.Items != nil {
		addEmbedded(s.Items.Schema, form)
	}
	if s.AdditionalProperties != nil {
		addEmbedded(s.AdditionalProperties.Schema, form)
	}
	if embedded, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); !embedded {
		return
	}
	if open, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields"); open && form == Swagger {
		return // with any field declared, kubectl would refuse all others
	}
	addType(s, apiVersionText, kindText)
	addMetadata(s, form)
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
}

// forSwagger takes away what OpenAPI 2 does not have, and types that clients would read too narrowly: of what
// may be null, and of what may have more fields than are declared.
func forSwagger(in *structural.Structural) *structural.Structural {
	out := in.DeepCopy()
	v := structural.Visitor{Structural: func(s *structural.Structural) bool {
		if vv := s.ValueValidation; vv != nil {
			vv.AllOf, vv.OneOf, vv.AnyOf, vv.Not = nil, nil, nil, nil
			vv.Required = slices.DeleteFunc(slices.Clone(vv.Required), func(name string) bool { return s.Properties[name].Nullable })
			if of := s.AdditionalProperties; of != nil && of.Structural != nil && of.Structural.Nullable {
				vv.Required = nil
			}
		}
		if s.Nullable || s.XPreserveUnknownFields {
			s.Items, s.Properties = nil, nil
		}
		if s.Nullable || s.XPreserveUnknownFields && s.Type == "object" || s.Items == nil && s.Type == "array" {
			s.Type, s.Nullable = "", false
		}
		return true
	}}
	v.Visit(out)
	return out
}
