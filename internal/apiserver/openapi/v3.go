package openapi

import (
	"encoding/json"
	"io"
	"net/http"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// document is an OpenAPI 3 document.
type document struct {
	OpenAPI    string       `json:"openapi"`
	Info       *spec.Info   `json:"info"`
	Paths      *spec3.Paths `json:"paths"`
	Components struct {
		Schemas         map[string]json.RawMessage `json:"schemas"`
		SecuritySchemes spec3.SecuritySchemes      `json:"securitySchemes"`
	} `json:"components"`
}

// document3 is the OpenAPI 3 document of one group-version, or of another path.
func document3(s *schemas, kinds []kind, r *root, info *spec.Info) (*document, error) {
	doc := &document{OpenAPI: "3.0.0", Info: info, Paths: &spec3.Paths{Paths: map[string]*spec3.Path{}}}
	doc.Components.SecuritySchemes = spec3.SecuritySchemes{bearer: {
		SecuritySchemeProps: spec3.SecuritySchemeProps{Type: "apiKey", Description: bearerDoc, Name: "authorization", In: "header"},
	}}
	own := r.path(s)
	doc.Paths.Paths[r.url] = own.v3()
	for i := range kinds {
		for _, p := range kinds[i].paths(s) {
			doc.Paths.Paths[p.url] = p.v3()
		}
	}
	var err error
	doc.Components.Schemas, err = s.result()
	return doc, err
}

// write writes the document.
func (d *document) write(w io.Writer, mediaType string) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if mediaType == proto3 {
		data = encoder{}.document3().message(nil, data)
	}
	_, err = w.Write(data)
	return err
}

func (p *path) v3() *spec3.Path {
	out := &spec3.Path{}
	for _, q := range p.parameters {
		out.Parameters = append(out.Parameters, parameter3(q))
	}
	for i := range p.operations {
		o := &p.operations[i]
		consumes, produces := p.types(o)
		responses := map[int]*spec3.Response{http.StatusUnauthorized: {ResponseProps: spec3.ResponseProps{Description: "Unauthorized"}}}
		for _, code := range p.codes(o) {
			responses[code] = &spec3.Response{ResponseProps: spec3.ResponseProps{Description: http.StatusText(code), Content: content3(produces, o.answer)}}
		}
		op := &spec3.Operation{OperationProps: spec3.OperationProps{
			OperationId: o.id, Tags: []string{p.tag}, Description: o.doc,
			Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: responses}},
		}}
		o.noted(&op.VendorExtensible)
		for _, q := range o.query {
			op.Parameters = append(op.Parameters, parameter3(q))
		}
		if o.body != nil {
			op.RequestBody = &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{Content: content3(consumes, o.body), Required: o.method != "delete"}}
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

func parameter3(p parameter) *spec3.Parameter {
	return &spec3.Parameter{ParameterProps: spec3.ParameterProps{
		Name: p.name, In: p.in, Required: p.in == "path", Description: p.doc,
		Schema: &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{p.kind}, UniqueItems: true}},
	}}
}
