package openapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kemudi/kemudi/internal/wire"
)

// swaggerDocument is an OpenAPI 2 document.
type swaggerDocument struct {
	info        *spec.Info
	paths       map[string]spec.PathItem
	definitions map[string]json.RawMessage
	parameters  map[string]spec.Parameter

	shared map[parameter]spec.Parameter // references to parameters, or those that have none
}

// document2 is the OpenAPI 2 document of all group-versions together.
func document2(s *schemas, kinds []kind, roots []root, info *spec.Info) (*swaggerDocument, error) {
	doc := &swaggerDocument{
		info: info, paths: map[string]spec.PathItem{}, parameters: map[string]spec.Parameter{}, shared: map[parameter]spec.Parameter{},
	}
	for i := range roots {
		p := roots[i].path(s)
		doc.paths[p.url] = doc.path(&p)
	}
	for i := range kinds {
		for _, p := range kinds[i].paths(s) {
			doc.paths[p.url] = doc.path(&p)
		}
	}
	var err error
	doc.definitions, err = s.result()
	return doc, err
}

// section is a part of a document: a value, or values by name.
type section struct {
	name  string
	names []string
	value func(name string) any
	whole bool // there are no names
}

func whole(name string, value any) section {
	return section{name: name, whole: true, value: func(string) any { return value }}
}

func byName[V any](name string, all map[string]V) section {
	return section{name: name, names: slices.Sorted(maps.Keys(all)), value: func(name string) any { return all[name] }}
}

func (d *swaggerDocument) sections() []section {
	key := &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{Type: "apiKey", Description: bearerDoc, Name: "authorization", In: "header"}}
	return []section{
		whole("swagger", "2.0"), whole("info", d.info), byName("paths", d.paths), byName("definitions", d.definitions), byName("parameters", d.parameters),
		whole("securityDefinitions", spec.SecurityDefinitions{bearer: key}), whole("security", []map[string][]string{{bearer: {}}}),
	}
}

// text is the value of a name as JSON.
func (s *section) text(name string) ([]byte, error) {
	value := s.value(name)
	if text, ok := value.(json.RawMessage); ok {
		return text, nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("make %s %s of a document: %w", s.name, name, err)
	}
	return text, nil
}

// writeJSON writes the document value by value, so that all of it is nowhere at once.
func (d *swaggerDocument) writeJSON(w io.Writer) error {
	b := []byte{'{'}
	for i, s := range d.sections() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(wire.AppendString(b, s.name), ':')
		if s.whole {
			text, err := s.text("")
			if err != nil {
				return err
			}
			b = append(b, text...)
			continue
		}
		b = append(b, '{')
		for j, name := range s.names {
			text, err := s.text(name)
			if err != nil {
				return err
			}
			if j > 0 {
				b = append(b, ',')
			}
			b = append(append(wire.AppendString(b, name), ':'), text...)
			if _, err := w.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
		b = append(b, '}')
	}
	_, err := w.Write(append(b, '}'))
	return err
}

// writeProto writes the document as protobuf.
func (d *swaggerDocument) writeProto(w io.Writer) error {
	doc := encoder{}.document()
	var b []byte
	for _, s := range d.sections() {
		f := doc.fields[s.name]
		if s.whole {
			text, err := s.text("")
			if err != nil {
				return err
			}
			b = f.append(b[:0], text)
		} else {
			var err error
			b = nested(b[:0], f.number, func(b []byte) []byte {
				for _, name := range s.names {
					text, problem := s.text(name)
					if problem != nil {
						err = problem
						break
					}
					b = f.of.member(b, []byte(name), text)
				}
				return b
			})
			if err != nil {
				return err
			}
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func (d *swaggerDocument) path(p *path) spec.PathItem {
	var out spec.PathItem
	out.Parameters = d.list(p.parameters)
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
		op.Parameters = d.list(o.query)
		if o.body != nil {
			op.Parameters = slices.Insert(op.Parameters, 0, d.body(o))
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

// list are the parameters of a path or an operation. There is place for one more.
func (d *swaggerDocument) list(all []parameter) []spec.Parameter {
	out := make([]spec.Parameter, 0, len(all)+1)
	for _, p := range all {
		out = append(out, d.parameter(p, func() spec.Parameter {
			return spec.Parameter{
				SimpleSchema:      spec.SimpleSchema{Type: p.kind},
				CommonValidations: spec.CommonValidations{UniqueItems: true},
				ParamProps:        spec.ParamProps{Name: p.name, In: p.in, Required: p.in == "path", Description: p.doc},
			}
		}))
	}
	return out
}

// body is the parameter for what an operation is sent.
func (d *swaggerDocument) body(o *operation) spec.Parameter {
	required := o.method != "delete"
	return d.parameter(parameter{name: "body", in: "body", kind: o.body.Ref.String(), doc: strconv.FormatBool(required)}, func() spec.Parameter {
		return spec.Parameter{ParamProps: spec.ParamProps{Name: "body", In: "body", Required: required, Schema: o.body}}
	})
}

// parameter has a parameter once in the document and returns a reference to it, as upstream
// does with those that are not of a kind or by which old clients know what a server can do.
func (d *swaggerDocument) parameter(by parameter, how func() spec.Parameter) spec.Parameter {
	if p, ok := d.shared[by]; ok {
		return p
	}
	p := how()
	switch {
	case p.Name == "name" && p.In != "body", p.In == "query" && (p.Name == "fieldValidation" || p.Name == "dryRun"),
		p.In == "body" && !strings.HasPrefix(p.Schema.Ref.String(), "#/definitions/io.k8s.apimachinery"):
	default:
		text, err := json.Marshal(p)
		if err != nil {
			break
		}
		h := fnv.New64()
		h.Write(text)
		name := p.Name + "-" + base64.URLEncoding.EncodeToString(h.Sum(nil)[:6])
		d.parameters[name] = p
		p = spec.Parameter{Refable: spec.Refable{Ref: spec.MustCreateRef("#/parameters/" + name)}}
	}
	d.shared[by] = p
	return p
}
