package apiextensions

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// warn tells of what schemas say in vain, if they did not before.
func warn(crd, old *apiextensionsv1.CustomResourceDefinition) []string {
	now := append(unknownFormats(crd), setsOfWholes(crd)...)
	if old == nil || len(now) == 0 {
		return now
	}
	before := append(unknownFormats(old), setsOfWholes(old)...)
	return slices.DeleteFunc(now, func(w string) bool { return slices.Contains(before, w) })
}

// unknownFormats are the formats of strings and numbers that nobody checks.
func unknownFormats(crd *apiextensionsv1.CustomResourceDefinition) (out []string) {
	version := environment.DefaultCompatibilityVersion()
	eachSchema(crd, func(s *apiextensionsv1.JSONSchemaProps) {
		if s.Format == "" {
			return
		}
		one := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
		for _, f := range schemavalidation.GetUnrecognizedFormats(one, version) {
			out = append(out, fmt.Sprintf("unrecognized format %q", f))
		}
	})
	return out
}

// setsOfWholes are sets of what is no scalar, whose items nobody can tell apart.
func setsOfWholes(crd *apiextensionsv1.CustomResourceDefinition) (out []string) {
	eachSchema(crd, func(s *apiextensionsv1.JSONSchemaProps) {
		if s.XListType == nil || *s.XListType != "set" || s.Items == nil || s.Items.Schema == nil {
			return
		}
		if kind := s.Items.Schema.Type; kind == "object" || kind == "array" {
			out = append(out, fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules", kind))
		}
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// eachSchema calls a function for the schemas of all versions and of what is within them.
func eachSchema(crd *apiextensionsv1.CustomResourceDefinition, f func(*apiextensionsv1.JSONSchemaProps)) {
	for _, v := range crd.Spec.Versions {
		if v.Schema != nil {
			walk(v.Schema.OpenAPIV3Schema, f)
		}
	}
}

func walk(s *apiextensionsv1.JSONSchemaProps, f func(*apiextensionsv1.JSONSchemaProps)) {
	if s == nil {
		return
	}
	f(s)
	if s.Items != nil {
		walk(s.Items.Schema, f)
	}
	if s.AdditionalProperties != nil {
		walk(s.AdditionalProperties.Schema, f)
	}
	walk(s.Not, f)
	for _, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			walk(&list[i], f)
		}
	}
	for _, p := range s.Properties {
		walk(&p, f)
	}
}
