package openapi

import (
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"net/http"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// swaggerDocument is an OpenAPI 2 document.
type swaggerDocument struct {
	Swagger             string                     `json:"swagger"`
	Info                *spec.Info                 `json:"info"`
	Paths               *spec.Paths                `json:"paths"`
	Definitions         map[string]json.RawMessage `json:"definitions"`
	Parameters          map[string]spec.Parameter  `json:"parameters"`
	SecurityDefinitions spec.SecurityDefinitions   `json:"securityDefinitions"`
	Security            []map[string][]string      `json:"security"`
}

// document2 is the OpenAPI 2 document of all group-versions together.
func document2(s *schemas, kinds []kind, roots []root, info *spec.Info) (*swaggerDocument, error) {
	key := &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{Type: "apiKey", Description: bearerDoc, Name: "authorization", In: "header"}}
	doc := &swaggerDocument{
		Swagger: "2.0", Info: info, Paths: &spec.Paths{Paths: map[string]spec.PathItem{}}, Parameters: map[string]spec.Parameter{},
		SecurityDefinitions: spec.SecurityDefinitions{bearer: key}, Security: []map[string][]string{{bearer: {}}},
	}
	for i := range roots {
		p := roots[i].path(s)
		doc.Paths.Paths[p.url] = doc.path(&p)
	}
	for i := range kinds {
		for _, p := range kinds[i].paths(s) {
			doc.Paths.Paths[p.url] = doc.path(&p)
		}
	}
	var err error
	doc.Definitions, err = s.result()
	return doc, err
}

func (d *swaggerDocument) path(p *path) spec.PathItem {
	var out spec.PathItem
	for _, q := range p.parameters {
		out.Parameters = append(out.Parameters, d.parameter(parameter2(q)))
	}
	for i := range p.operations {
		o := &p.operations[i]
		consumes, produces := p.types(o)
		responses := map[int]spec.Response{http.StatusUnauthorized: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}}}
		for _, code := range p.codes(o) {
			responses[code] = spec.Response{ResponseProps: spec.ResponseProps{Description: http.StatusText(code), Schema: o.answer}}
		}
		op := &spec.Operation{OperationProps: spec.OperationProps{
			ID: o.id, Tags: []string{p.tag}, Description: o.doc, Schemes: []string{"https"}, Consumes: consumes, Produces: produces,
			Responses: &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: responses}},
		}}
		o.noted(&op.VendorExtensible)
		if o.body != nil {
			op.Parameters = append(op.Parameters, d.parameter(spec.Parameter{
				ParamProps: spec.ParamProps{Name: "body", In: "body", Required: o.method != "delete", Schema: o.body},
			}))
		}
		for _, q := range o.query {
			op.Parameters = append(op.Parameters, d.parameter(parameter2(q)))
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

func parameter2(p parameter) spec.Parameter {
	return spec.Parameter{
		SimpleSchema:      spec.SimpleSchema{Type: p.kind},
		CommonValidations: spec.CommonValidations{UniqueItems: true},
		ParamProps:        spec.ParamProps{Name: p.name, In: p.in, Required: p.in == "path", Description: p.doc},
	}
}

// parameter has a parameter once in the document and returns a reference to it, as upstream
// does with those that are not of a kind or by which old clients know what a server can do.
func (d *swaggerDocument) parameter(p spec.Parameter) spec.Parameter {
	switch {
	case p.Name == "name" && p.In != "body", p.In == "query" && (p.Name == "fieldValidation" || p.Name == "dryRun"),
		p.In == "body" && !strings.HasPrefix(p.Schema.Ref.String(), "#/definitions/io.k8s.apimachinery"):
		return p
	}
	text, err := json.Marshal(p)
	if err != nil {
		return p
	}
	h := fnv.New64()
	h.Write(text)
	name := p.Name + "-" + base64.URLEncoding.EncodeToString(h.Sum(nil)[:6])
	d.Parameters[name] = p
	return spec.Parameter{Refable: spec.Refable{Ref: spec.MustCreateRef("#/parameters/" + name)}}
}
