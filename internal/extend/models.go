package extend

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/kemudi/kemudi/internal/custom"
)

// models read objects of all versions of a definition for server-side apply. The models are made when
// the first object is read.
type models struct {
	load func() (managedfields.TypeConverter, error)
}

var _ managedfields.TypeConverter = (*models)(nil)

func newModels(from *Source) *models {
	return &models{load: sync.OnceValues(func() (managedfields.TypeConverter, error) {
		crd := from.crd.Load()
		all := metadataModels()
		for i := range crd.Spec.Versions {
			v := &crd.Spec.Versions[i]
			all[ModelName(crd.Spec.Group, v.Name, crd.Spec.Names.Kind)] = Model(crd, v, OpenAPI3)
		}
		c, err := managedfields.NewTypeConverter(all, crd.Spec.PreserveUnknownFields)
		if err != nil {
			return nil, fmt.Errorf("read the models of %s: %w", crd.Name, err)
		}
		return c, nil
	})}
}

// ObjectToTyped reads an object by the model of its version.
func (t *models) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	c, err := t.load()
	if err != nil {
		return nil, err
	}
	if o, ok := obj.(*custom.Object); ok {
		obj = &unstructured.Unstructured{Object: o.View()}
	}
	return c.ObjectToTyped(obj, opts...)
}

// TypedToObject is the way back, to an unstructured object.
func (t *models) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	c, err := t.load()
	if err != nil {
		return nil, err
	}
	return c.TypedToObject(v)
}

// metadataModels are the models of metadata, as far as owners of fields are told apart by them.
func metadataModels() map[string]*spec.Schema {
	scalar := func(kind string) spec.Schema { return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{kind}}} }
	texts := func() spec.Schema {
		s, text := scalar("object"), scalar("string")
		s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &text}
		return s
	}
	list := func(items spec.Schema, kind string, keys ...any) spec.Schema {
		s := scalar("array")
		s.Items = &spec.SchemaOrArray{Schema: &items}
		s.AddExtension("x-kubernetes-list-type", kind)
		if len(keys) > 0 {
			s.AddExtension("x-kubernetes-list-map-keys", keys)
		}
		return s
	}
	ref := func(name string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(OpenAPI3.prefix() + name)}}
	}
	const at = "io.k8s.apimachinery.pkg.apis.meta.v1."
	meta, owner, entry, free := scalar("object"), scalar("object"), scalar("object"), scalar("object")
	for name, kind := range map[string]string{
		"name": "string", "generateName": "string", "namespace": "string", "selfLink": "string", "uid": "string", "resourceVersion": "string",
		"generation": "integer", "creationTimestamp": "string", "deletionTimestamp": "string", "deletionGracePeriodSeconds": "integer",
	} {
		meta.SetProperty(name, scalar(kind))
	}
	meta.SetProperty("labels", texts())
	meta.SetProperty("annotations", texts())
	meta.SetProperty("finalizers", list(scalar("string"), "set"))
	meta.SetProperty("ownerReferences", list(ref(at+"OwnerReference"), "map", "uid"))
	meta.SetProperty("managedFields", list(ref(at+"ManagedFieldsEntry"), "atomic"))
	for name, kind := range map[string]string{
		"apiVersion": "string", "kind": "string", "name": "string", "uid": "string", "controller": "boolean", "blockOwnerDeletion": "boolean",
	} {
		owner.SetProperty(name, scalar(kind))
	}
	owner.AddExtension("x-kubernetes-map-type", "atomic")
	for _, name := range []string{"apiVersion", "fieldsType", "manager", "operation", "subresource", "time"} {
		entry.SetProperty(name, scalar("string"))
	}
	entry.SetProperty("fieldsV1", ref(at+"FieldsV1"))
	return map[string]*spec.Schema{
		objectMeta: &meta, at + "OwnerReference": &owner, at + "ManagedFieldsEntry": &entry, at + "FieldsV1": &free,
	}
}
