package openapi

import (
	"maps"
	"slices"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// document2 is the OpenAPI 2 document of all group-versions together.
func document2(kinds []kind, roots []root, info *spec.Info) *spec.Swagger {
	s := newSchemas("#/definitions/")
	key := &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{Type: "apiKey", Description: bearerDoc, Name: "authorization", In: "header"}}
	doc := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: info, Paths: &spec.Paths{Paths: map[string]spec.PathItem{}}, Definitions: spec.Definitions{},
		SecurityDefinitions: spec.SecurityDefinitions{bearer: key}, Security: []map[string][]string{{bearer: {}}},
	}}
	for i := range roots {
		doc.Paths.Paths[roots[i].url] = roots[i].path(s).v2()
	}
	for i := range kinds {
		for _, p := range kinds[i].paths(s) {
			doc.Paths.Paths[p.url] = p.v2()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		doc.Definitions[name] = flat(*s.byName[name])
	}
	return doc
}

// flat unwraps references: in version 2 a field's description may stand beside one.
func flat(s spec.Schema) spec.Schema {
	props := make(map[string]spec.Schema, len(s.Properties))
	for name, p := range s.Properties {
		if len(p.AllOf) == 1 {
			p.Ref, p.AllOf = p.AllOf[0].Ref, nil
		}
		props[name] = p
	}
	if s.Properties != nil {
		s.Properties = props
	}
	return s
}

func (p path) v2() spec.PathItem {
	var out spec.PathItem
	for _, name := range p.parameters {
		out.Parameters = append(out.Parameters, parameter2(parameterOf(name), "path"))
	}
	for _, q := range p.query {
		out.Parameters = append(out.Parameters, parameter2(q, "query"))
	}
	answers, patches := p.types()
	for i := range p.operations {
		o := &p.operations[i]
		op := &spec.Operation{OperationProps: spec.OperationProps{
			ID: o.id, Tags: []string{p.tag}, Description: o.doc, Schemes: []string{"https"}, Produces: answers, Consumes: []string{"*/*"},
			Responses: &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{
				200: {ResponseProps: spec.ResponseProps{Description: "OK", Schema: o.answer}},
				401: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}},
			}}},
		}}
		o.noted(&op.VendorExtensible)
		if o.body != nil {
			op.Parameters = append(op.Parameters, spec.Parameter{ParamProps: spec.ParamProps{Name: "body", In: "body", Required: o.method != "delete", Schema: o.body}})
			if o.method == "patch" {
				op.Consumes = patches
			}
		}
		for _, name := range o.query {
			op.Parameters = append(op.Parameters, parameter2(parameterOf(name), "query"))
		}
		switch o.method {
		case "get":
			out.Get = op
		case "put":
			out.Put = op
		case "post":
			out.Post = op
		case "patch":
			out.Patch = op
		case "delete":
			out.Delete = op
		case "head":
			out.Head = op
		case "options":
			out.Options = op
		}
	}
	return out
}

func parameter2(p parameter, in string) spec.Parameter {
	return spec.Parameter{
		SimpleSchema:      spec.SimpleSchema{Type: p.kind},
		CommonValidations: spec.CommonValidations{UniqueItems: true},
		ParamProps:        spec.ParamProps{Name: p.name, In: in, Required: in == "path", Description: p.doc},
	}
}
