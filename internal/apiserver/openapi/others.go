package openapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Other is a group-version that another server has.
type Other struct {
	schema.GroupVersion
	// Part is of its document, as PartOf has made it; nil: it has none.
	Part []byte
}

// With is the service for what is served here and, in the document of version 2, by others. What others have takes the place of what
// there is here, and a group that yields is not served here at all.
func (s *Service) With(others []Other, yields func(group string) bool) *Service {
	return s.serving(others, func(gv schema.GroupVersion) bool {
		return s.on(gv) && !yields(gv.Group) && !slices.ContainsFunc(others, func(o Other) bool { return o.GroupVersion == gv })
	})
}

// kindMark is the extension that says which kinds a schema is that of.
const kindMark = "x-kubernetes-group-version-kind"

// PartOf is the part of another server's document of version 2 that is of a group-version: its paths and what these refer to, which
// is of kinds of the group-version alone. It is compressed, since it is kept for as long as there is the server.
// Nil: there is none.
func PartOf(text []byte, gv schema.GroupVersion) ([]byte, error) {
	var doc spec.Swagger
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("read an OpenAPI document: %w", err)
	}
	p := part{from: &doc, Swagger: "2.0", Paths: map[string]json.RawMessage{}, Definitions: map[string]json.RawMessage{}, Parameters: map[string]json.RawMessage{}}
	if doc.Paths == nil {
		return nil, nil
	}
	for path, item := range doc.Paths.Paths {
		if path != "/apis/"+gv.Group+"/" && path != base(gv) && !strings.HasPrefix(path, base(gv)+"/") {
			continue
		}
		if err := p.take(p.Paths, path, item); err != nil {
			return nil, err
		}
	}
	if len(p.Paths) == 0 {
		return nil, nil
	}
	for _, s := range doc.Definitions {
		ownKinds(&s, gv)
	}
	if err := p.complete(); err != nil {
		return nil, err
	}
	return compressed(func(w io.Writer) error { return json.NewEncoder(w).Encode(p) })
}

// part is a part of a document, as text.
type part struct {
	Swagger     string                     `json:"swagger"`
	Paths       map[string]json.RawMessage `json:"paths"`
	Definitions map[string]json.RawMessage `json:"definitions"`
	Parameters  map[string]json.RawMessage `json:"parameters"`

	from *spec.Swagger
	refs []string // to be looked at
}

var refs2 = regexp.MustCompile(`"\$ref":"#/((?:definitions|parameters)/[^"]+)"`)

// take takes a value up, and notes what it refers to.
func (p *part) take(in map[string]json.RawMessage, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write %s of an OpenAPI document: %w", name, err)
	}
	in[name] = text
	for _, m := range refs2.FindAllSubmatch(text, -1) {
		p.refs = append(p.refs, string(m[1]))
	}
	return nil
}

// complete takes up what is referred to.
func (p *part) complete() error {
	for len(p.refs) > 0 {
		where, name, _ := strings.Cut(p.refs[0], "/")
		p.refs = p.refs[1:]
		var err error
		if s, ok := p.from.Definitions[name]; ok && where == "definitions" && p.Definitions[name] == nil {
			err = p.take(p.Definitions, name, s)
		}
		if q, ok := p.from.Parameters[name]; ok && where == "parameters" && p.Parameters[name] == nil {
			err = p.take(p.Parameters, name, q)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ownKinds takes from a schema that it is that of a kind of another group-version.
func ownKinds(s *spec.Schema, gv schema.GroupVersion) {
	marked, _ := s.Extensions[kindMark].([]any)
	var own []any
	for _, m := range marked {
		kind, _ := m.(map[string]any)
		if kind["group"] == gv.Group && kind["version"] == gv.Version {
			own = append(own, m)
		}
	}
	delete(s.Extensions, kindMark)
	if own != nil {
		s.Extensions[kindMark] = own
	}
}

// merge adds what another server has. Of two schemas of one name that differ, the other's gets a name of its own, as upstream gives it.
func (d *swaggerDocument) merge(o Other) error {
	z, err := gzip.NewReader(bytes.NewReader(o.Part))
	if err != nil {
		return fmt.Errorf("read the part of %s: %w", o.GroupVersion, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return fmt.Errorf("read the part of %s: %w", o.GroupVersion, err)
	}
	var part spec.Swagger
	if err := json.Unmarshal(text, &part); err != nil {
		return fmt.Errorf("read the part of %s: %w", o.GroupVersion, err)
	}
	same, err := d.same(part.Definitions)
	if err != nil {
		return err
	}
	all := &spec.Swagger{SwaggerProps: spec.SwaggerProps{Paths: &spec.Paths{Paths: d.paths}, Definitions: same, Parameters: d.parameters}}
	if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(all, &part); err != nil {
		return fmt.Errorf("add the part of %s: %w", o.GroupVersion, err)
	}
	for name, s := range all.Definitions {
		if d.definitions[name], err = json.Marshal(s); err != nil {
			return fmt.Errorf("write the schema %s: %w", name, err)
		}
	}
	return nil
}

// same are the schemas of this document whose names another document has, too, with or without the suffix ("_v2") by
// which schemas of one name are told apart. The rest need not be decoded.
func (d *swaggerDocument) same(others spec.Definitions) (spec.Definitions, error) {
	out := spec.Definitions{}
	for name, text := range d.definitions {
		_, there := others[name]
		if i := strings.LastIndex(name, "_v"); i > 0 && !there {
			_, there = others[name[:i]]
		}
		if !there {
			continue
		}
		var s spec.Schema
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("read the schema %s: %w", name, err)
		}
		if s.Extensions == nil {
			s.Extensions = spec.Extensions{} // what the other is that of is added
		}
		out[name] = s
	}
	return out, nil
}
