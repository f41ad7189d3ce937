package openapi

import (
	"maps"
	"slices"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Media types of bodies, in the order in which they are documented.
var (
	answerTypes = []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}
	patchTypes  = []string{
		"application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
	}
)

// types are the media types of answers and patches at the path.
func (p *path) types() (answers, patches []string) {
	if p.custom {
		return answerTypes[:2], patchTypes[:3]
	}
	return answerTypes, patchTypes
}

// booleans and integers are the query parameters that are not strings.
var (
	booleans = []string{"allowWatchBookmarks", "force", "orphanDependents", "sendInitialEvents", "watch"}
	integers = []string{"gracePeriodSeconds", "limit", "timeoutSeconds"}
)

// document3 is the OpenAPI 3 document of one group-version, or of other paths.
func document3(kinds []kind, roots []root, info *spec.Info) *spec3.OpenAPI {
	s := newSchemas("#/components/schemas/")
	doc := &spec3.OpenAPI{
		Version: "3.0.0", Info: info,
		Paths: &spec3.Paths{Paths: map[string]*spec3.Path{}},
		Components: &spec3.Components{SecuritySchemes: spec3.SecuritySchemes{bearer: {
			SecuritySchemeProps: spec3.SecuritySchemeProps{Type: "apiKey", Description: bearerDoc, Name: "authorization", In: "header"},
		}}},
	}
	for i := range roots {
		doc.Paths.Paths[roots[i].url] = roots[i].path(s).v3()
	}
	for i := range kinds {
		for _, p := range kinds[i].paths(s) {
			doc.Paths.Paths[p.url] = p.v3()
		}
	}
	doc.Components.Schemas = maps.Clone(s.byName)
	return doc
}

func (p path) v3() *spec3.Path {
	out := &spec3.Path{}
	for _, name := range p.parameters {
		out.Parameters = append(out.Parameters, parameter3(parameterOf(name), "path"))
	}
	for _, q := range p.query {
		out.Parameters = append(out.Parameters, parameter3(q, "query"))
	}
	answers, patches := p.types()
	for i := range p.operations {
		o := &p.operations[i]
		op := &spec3.Operation{OperationProps: spec3.OperationProps{
			OperationId: o.id, Tags: []string{p.tag}, Description: o.doc, Responses: responses3(answers, o.answer),
		}}
		o.noted(&op.VendorExtensible)
		for _, name := range o.query {
			op.Parameters = append(op.Parameters, parameter3(parameterOf(name), "query"))
		}
		if o.body != nil {
			types := answers
			if o.method == "patch" {
				types = patches
			}
			op.RequestBody = &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{Content: content3(types, o.body), Required: o.method != "delete"}}
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

func content3(types []string, body *spec.Schema) map[string]*spec3.MediaType {
	out := map[string]*spec3.MediaType{}
	for _, t := range types {
		out[t] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: body}}
	}
	return out
}

func responses3(types []string, answer *spec.Schema) *spec3.Responses {
	return &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: map[int]*spec3.Response{
		200: {ResponseProps: spec3.ResponseProps{Description: "OK", Content: content3(types, answer)}},
		401: {ResponseProps: spec3.ResponseProps{Description: "Unauthorized"}},
	}}}
}

func parameter3(p parameter, in string) *spec3.Parameter {
	return &spec3.Parameter{ParameterProps: spec3.ParameterProps{
		Name: p.name, In: in, Required: in == "path", Description: p.doc,
		Schema: &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{p.kind}, UniqueItems: true}},
	}}
}

// parameterOf is a parameter of more than one resource, by its name.
func parameterOf(name string) parameter {
	kind := "string"
	switch {
	case slices.Contains(booleans, name):
		kind = "boolean"
	case slices.Contains(integers, name):
		kind = "integer"
	}
	return parameter{name, kind, parameterDoc[name]}
}

var parameterDoc = map[string]string{
	"name":                 "name of the object",
	"path":                 "path to what is behind the proxy",
	"namespace":            "object name and auth scope, such as for teams and projects",
	"dryRun":               "When present, says that changes are not to be kept. The only value is All.",
	"fieldManager":         "The name of the actor that makes the change. Required for apply.",
	"fieldValidation":      "What to do about unknown or duplicate fields: Ignore, Warn (the default) or Strict.",
	"force":                "Take over fields that others manage. For apply only.",
	"allowWatchBookmarks":  "Ask for events of type BOOKMARK.",
	"continue":             "Where the next part of a list begins, as the part before it said.",
	"fieldSelector":        "Restrict the list by fields.",
	"labelSelector":        "Restrict the list by labels.",
	"limit":                "How many objects to return at the most.",
	"resourceVersion":      "Which state may be served.",
	"resourceVersionMatch": "How resourceVersion is meant: Exact or NotOlderThan.",
	"sendInitialEvents":    "Begin a watch with the present state.",
	"timeoutSeconds":       "How long a list or watch may take.",
	"watch":                "Watch for changes instead of listing.",
	"gracePeriodSeconds":   "How long the object may take to end. Zero deletes at once.",
	"orphanDependents":     "Deprecated: use propagationPolicy.",
	"propagationPolicy":    "What happens to dependents: Orphan, Background or Foreground.",
}
