//go:build !race

package openapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/openapi/openapitest"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kemudi/kemudi/internal/texttest"
)

// TestDocumentsAreThoseOfUpstream holds documents against those that upstream's server has once answered with, which
// client-go has for its own tests: each path and operation, its parameters, bodies and answers, and each
// field of each schema. They are of an earlier release: what differs is in the file, and is what has been changed
// upstream since, or what is not served here.
func TestDocumentsAreThoseOfUpstream(t *testing.T) {
	recorded, err := openapitest.NewEmbeddedFileClient().Paths()
	if err != nil {
		t.Fatal(err)
	}
	s := service()
	var out []string
	compared := 0
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		if s.layout().hashes[name] == "" {
			continue
		}
		text, err := recorded[name].Schema("application/json")
		if err != nil {
			t.Fatal(err)
		}
		var want, got spec3.OpenAPI
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(get(t, s, "/openapi/v3/"+name, "application/json").Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		c := &comparison{at: name}
		c.paths(&got, &want)
		c.schemas(got.Components.Schemas, want.Components.Schemas)
		compared += c.compared
		out = append(out, c.differences...)
	}
	if compared < 4000 {
		t.Errorf("got %d parts of documents to compare, want 4,000", compared)
	}
	slices.Sort(out)
	texttest.File(t, "testdata/deviations.txt", strings.Join(slices.Compact(out), "\n")+"\n")
}

type comparison struct {
	at          string
	compared    int
	differences []string
}

func (c *comparison) say(parts ...string) {
	c.differences = append(c.differences, strings.Join(parts, " "))
}

func (c *comparison) paths(got, want *spec3.OpenAPI) {
	for url, w := range want.Paths.Paths {
		g := got.Paths.Paths[url]
		if g == nil {
			c.say(url, "is not there")
			continue
		}
		c.parameters(url, g.Parameters, w.Parameters)
		ours := operationsOf(g)
		for method, o := range operationsOf(w) {
			if ours[method] == nil {
				c.say(url, method, "is not there")
				continue
			}
			c.operation(url+" "+method, ours[method], o)
		}
		for method := range ours {
			if operationsOf(w)[method] == nil {
				c.say(url, method, "was not there")
			}
		}
	}
	for url := range got.Paths.Paths {
		if want.Paths.Paths[url] == nil {
			c.say(url, "was not there")
		}
	}
}

func operationsOf(p *spec3.Path) map[string]*spec3.Operation {
	out := map[string]*spec3.Operation{
		http.MethodGet: p.Get, http.MethodPut: p.Put, http.MethodPost: p.Post, http.MethodPatch: p.Patch, http.MethodDelete: p.Delete, http.MethodHead: p.Head, http.MethodOptions: p.Options,
	}
	maps.DeleteFunc(out, func(_ string, o *spec3.Operation) bool { return o == nil })
	return out
}

// text is a value as JSON. One that has none differs from all others.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func (c *comparison) same(at, what string, got, want any) {
	c.compared++
	if g, w := text(got), text(want); g != w {
		c.say(at, what, "was", w, "is", g)
	}
}

func (c *comparison) operation(at string, got, want *spec3.Operation) {
	c.same(at, "id", got.OperationId, want.OperationId)
	c.same(at, "description", got.Description, want.Description)
	c.same(at, "tags", got.Tags, want.Tags)
	c.same(at, "extensions", got.Extensions, want.Extensions)
	c.parameters(at, got.Parameters, want.Parameters)
	c.same(at, "codes", slices.Sorted(maps.Keys(got.Responses.StatusCodeResponses)), slices.Sorted(maps.Keys(want.Responses.StatusCodeResponses)))
	for code, w := range want.Responses.StatusCodeResponses {
		c.same(at, "answer", got.Responses.StatusCodeResponses[code], w)
	}
	c.same(at, "body", bodyOf(got), bodyOf(want))
}

// bodyOf is what is sent. Whether it has to be was not said then.
func bodyOf(o *spec3.Operation) map[string]*spec3.MediaType {
	if o.RequestBody == nil {
		return nil
	}
	return o.RequestBody.Content
}

func (c *comparison) parameters(at string, got, want []*spec3.Parameter) {
	names := func(list []*spec3.Parameter) (out []string) {
		for _, p := range list {
			out = append(out, p.In+" "+p.Name)
		}
		return out
	}
	ours := names(got)
	for i, p := range want {
		j := slices.Index(ours, names(want)[i])
		if j < 0 {
			c.say("parameter", p.Name, "is not there at", at)
			continue
		}
		g := *got[j]
		if g.Description != p.Description { // which have been rewritten for all operations
			c.say("parameter", p.Name, "was described as", text(p.Description), "is", text(g.Description))
			g.Description = p.Description
		}
		c.same(at, "parameter "+p.Name, &g, p)
	}
	for _, name := range ours {
		if !slices.Contains(names(want), name) {
			c.say("parameter", name, "was not there")
		}
	}
}

func (c *comparison) schemas(got, want map[string]*spec.Schema) {
	for name, w := range want {
		g := got[name]
		if g == nil {
			c.say(name, "is not there")
			continue
		}
		for field, p := range w.Properties {
			ours, ok := g.Properties[field]
			if !ok {
				c.say(name, field, "is not there")
				continue
			}
			c.same(name, field, shapeOf(ours), shapeOf(p))
		}
		a, b := *g, *w
		a.Properties, b.Properties = nil, nil
		if !strings.HasSuffix(name, ".DeleteOptions") && !strings.HasSuffix(name, ".WatchEvent") { // which are of all versions, then and now
			c.same(name, "kinds", g.Extensions["x-kubernetes-group-version-kind"], w.Extensions["x-kubernetes-group-version-kind"])
		}
		c.same(name, "itself", shapeOf(a), shapeOf(b))
	}
}

// shapeOf is a schema without what people read, and without what has been said of merging and defaults since then: the
// schemas themselves are held by the tests of models.
func shapeOf(s spec.Schema) spec.Schema {
	s.Description, s.Enum, s.Default, s.Required, s.Extensions = "", nil, nil, nil, nil
	for _, below := range []**spec.Schema{itemsOf(&s), valuesOf(&s)} {
		if below != nil {
			b := shapeOf(**below)
			if len(b.AllOf) == 1 {
				b.Ref, b.AllOf = b.AllOf[0].Ref, nil
			}
			*below = &b
		}
	}
	return s
}

func itemsOf(s *spec.Schema) **spec.Schema {
	if s.Items == nil || s.Items.Schema == nil {
		return nil
	}
	s.Items = &spec.SchemaOrArray{Schema: s.Items.Schema}
	return &s.Items.Schema
}

func valuesOf(s *spec.Schema) **spec.Schema {
	if s.AdditionalProperties == nil || s.AdditionalProperties.Schema == nil {
		return nil
	}
	s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: s.AdditionalProperties.Schema}
	return &s.AdditionalProperties.Schema
}
