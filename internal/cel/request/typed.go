package request

import (
	"reflect"
	"strings"

	"github.com/google/cel-go/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Types are what is known of the objects of expressions, and of a policy's params. Nil: nothing.
type Types struct{ Object, Params *apicel.DeclType }

// Typed is the environment of expressions about objects of known types, which finds fields that are
// not there. params says whether the policy has some.
func Typed(t Types, params bool) (*environment.EnvSet, error) {
	request, namespace := requestType(), namespaceType()
	all := []*apicel.DeclType{request, namespace}
	of := func(t *apicel.DeclType) *cel.Type {
		if t == nil {
			return cel.DynType
		}
		all = append(all, t)
		return t.CelType()
	}
	object := of(t.Object)
	variables := []cel.EnvOption{
		cel.Variable(Object, object), cel.Variable(OldObject, object), cel.Variable(Request, request.CelType()), cel.Variable(Namespace, namespace.CelType()),
		cel.Variable(Authorizer, library.AuthorizerType), cel.Variable(ResourceAuthority, library.ResourceCheckType),
	}
	if params {
		variables = append(variables, cel.Variable(Params, of(t.Params)))
	}
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: variables, DeclTypes: all,
	})
}

// described is a type whose form in JSON differs from its form in Go, and which says so itself.
type described interface {
	OpenAPISchemaType() []string
	OpenAPISchemaFormat() string
}

// TypeOf is what expressions know of the objects of a Go type, under a name that no other type has.
func TypeOf(t reflect.Type, name string) *apicel.DeclType {
	if d := typeOf(t, nil); d != nil {
		return d.MaybeAssignTypeName(name)
	}
	return nil
}

// TypeOfSchema is what expressions know of objects with a schema, under a name that no other type has.
func TypeOfSchema(s *spec.Schema, name string) *apicel.DeclType {
	d := common.SchemaDeclType(&openapi.Schema{Schema: s}, true)
	if d == nil || d.Fields == nil {
		return nil
	}
	d.Fields["metadata"] = apicel.NewDeclField("metadata", typeOf(reflect.TypeFor[metav1.ObjectMeta](), nil), true, nil, nil) // schemas say too little of it
	return d.MaybeAssignTypeName(name)
}

// typeOf is a type as expressions have it; nil: they do not see it. What is within itself is seen once.
func typeOf(t reflect.Type, within []reflect.Type) *apicel.DeclType {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if d, ok := reflect.New(t).Interface().(described); ok {
		return describedType(d)
	}
	switch t.Kind() {
	case reflect.Bool:
		return apicel.BoolType
	case reflect.String:
		return apicel.StringType
	case reflect.Float32, reflect.Float64:
		return apicel.DoubleType
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return apicel.IntType
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return apicel.BytesType
		}
		if of := typeOf(t.Elem(), within); of != nil {
			return apicel.NewListType(of, -1)
		}
	case reflect.Map:
		if of := typeOf(t.Elem(), within); of != nil {
			return apicel.NewMapType(apicel.StringType, of, -1)
		}
	case reflect.Struct:
		for _, outer := range within {
			if outer == t {
				return apicel.DynType
			}
		}
		fields := map[string]*apicel.DeclField{}
		addFields(fields, t, append(within, t))
		return apicel.NewObjectType("object", fields)
	}
	return nil
}

func describedType(d described) *apicel.DeclType {
	if d.OpenAPISchemaFormat() == "int-or-string" {
		return apicel.DynType
	}
	types := d.OpenAPISchemaType()
	switch {
	case len(types) != 1:
		return apicel.DynType
	case types[0] == "string" && d.OpenAPISchemaFormat() == "date-time":
		return apicel.TimestampType
	case types[0] == "string":
		return apicel.StringType
	}
	return nil
}

// addFields adds the JSON fields of a struct, those of what is embedded in it included.
func addFields(fields map[string]*apicel.DeclField, t reflect.Type, within []reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			inner := f.Type
			for inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			addFields(fields, inner, within)
			continue
		case name == "" || name == "-" || !f.IsExported():
			continue
		}
		escaped, ok := apicel.Escape(name)
		if of := typeOf(f.Type, within); ok && of != nil {
			fields[escaped] = apicel.NewDeclField(escaped, of, false, nil, nil)
		}
	}
}
