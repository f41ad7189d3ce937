//go:build !race

// Who asks at once is tested with the race detector in package apiserver; here documents are compared, which takes ten times
// as long under it.

package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/texttest"
)

func get(t *testing.T, s *Service, path, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// written is a document as JSON.
func written(tb testing.TB, s *Service, name string) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := s.write(&b, name, asJSON); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// service is one for all tests, which make documents once.
var service = sync.OnceValue(anew)

func anew() *Service {
	return New(nil, api.All(), "v1.37.2", func(gv schema.GroupVersion) bool { return gv.Version != "v1beta2" })
}

func TestDocumentOfAGroupVersionDescribesItsKinds(t *testing.T) {
	s := service()
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(get(t, s, "/openapi/v3", "application/json").Body.Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	if _, ok := index.Paths["apis/apps/v1beta2"]; ok {
		t.Error("a group-version that is off is listed")
	}
	w := get(t, s, index.Paths["apis/apps/v1"].ServerRelativeURL, "application/json")
	if w.Code != http.StatusOK {
		t.Fatalf("got %d, want 200: %s", w.Code, w.Body)
	}
	var doc spec3.OpenAPI
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	d := doc.Components.Schemas["io.k8s.api.apps.v1.Deployment"]
	if d == nil || !strings.Contains(d.Description, "Deployment enables declarative updates") {
		t.Fatalf("got Deployment schema %v, want one with its description", d)
	}
	if got := d.Properties["spec"].AllOf; len(got) != 1 || !strings.HasSuffix(got[0].Ref.String(), "io.k8s.api.apps.v1.DeploymentSpec") {
		t.Errorf("got spec %v, want a reference", got)
	}
	containers := doc.Components.Schemas["io.k8s.api.core.v1.PodSpec"].Properties["containers"]
	if got := containers.Extensions["x-kubernetes-patch-merge-key"]; got != "name" {
		t.Errorf("got merge key %v of containers, want name", got)
	}
	p := doc.Paths.Paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
	if p == nil || p.Patch == nil {
		t.Fatal("no patch operation of a deployment")
	}
	if doc.Paths.Paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"] == nil {
		t.Error("no path of the scale subresource")
	}
}

func TestEveryReferenceLeadsToASchema(t *testing.T) {
	s := service()
	for _, name := range s.layout().names {
		data := written(t, s, name)
		var doc struct {
			Components struct{ Schemas map[string]any }
		}
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		const ref = `"$ref":"#/components/schemas/`
		for _, part := range strings.Split(string(data), ref)[1:] {
			target, _, _ := strings.Cut(part, `"`)
			if doc.Components.Schemas[target] == nil {
				t.Errorf("%s refers to %s, which it does not define", name, target)
			}
		}
	}
}

func TestVersion2IsServedAsProtobuf(t *testing.T) {
	w := get(t, service(), "/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	if w.Code != http.StatusOK {
		t.Fatalf("got %d, want 200: %.200s", w.Code, w.Body)
	}
	var doc openapi_v2.Document
	if err := proto.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Definitions.AdditionalProperties) < 100 {
		t.Errorf("got %d definitions, want all", len(doc.Definitions.AdditionalProperties))
	}
}

func TestUnchangedDocumentIsNotSentAgain(t *testing.T) {
	s := service()
	for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"} {
		first := get(t, s, path, "application/json")
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("If-None-Match", first.Header().Get("Etag"))
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusNotModified || w.Body.Len() != 0 {
			t.Errorf("%s: got %d with %d bytes, want 304 with none", path, w.Code, w.Body.Len())
		}
	}
}

// TestHashOfADocumentChangesWithThatAlone holds that what others serve does not change a document: clients
// keep each by its hash.
func TestHashOfADocumentChangesWithThatAlone(t *testing.T) {
	index := func(s *Service) map[string]string {
		var doc struct {
			Paths map[string]struct{ ServerRelativeURL string }
		}
		if err := json.Unmarshal(get(t, s, "/openapi/v3", "application/json").Body.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for name, p := range doc.Paths {
			out[name] = p.ServerRelativeURL
		}
		return out
	}
	before := service()
	first := index(before)
	both := New(before, api.All(), "v1.37.2", func(schema.GroupVersion) bool { return true })
	second := index(both)
	if second["apis/apps/v1beta2"] == "" {
		t.Error("a group-version that came is not listed")
	}
	for name, url := range first {
		if second[name] != url {
			t.Errorf("%s: got %s when another came, want %s", name, second[name], url)
		}
	}
	if a, b := get(t, before, "/openapi/v2", "application/json"), get(t, both, "/openapi/v2", "application/json"); a.Header().Get("Etag") == b.Header().Get("Etag") {
		t.Error("the document of all did not change")
	}
	seen := map[string]string{}
	for name, url := range first {
		_, hash, _ := strings.Cut(url, "?hash=")
		if other := seen[hash]; other != "" {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[hash] = name
	}
	w := get(t, before, first["api/v1"], "application/json")
	if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "public, immutable" || strings.Trim(w.Header().Get("Etag"), `"`) == "" {
		t.Errorf("got %d with %v by its hash, want a document that may be kept", w.Code, w.Header())
	}
	if w := get(t, before, "/openapi/v3/api/v1?hash=OLD", "application/json"); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != first["api/v1"] {
		t.Errorf("got %d to %s by an old hash, want the way to %s", w.Code, w.Header().Get("Location"), first["api/v1"])
	}
}

func TestDocumentsComeAsTheyAreAskedFor(t *testing.T) {
	s := service()
	const proto = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
	for accept, want := range map[string]string{
		"": asJSON, "*/*": asJSON, "application/*;q=0.5": asJSON, proto: proto3, proto3: proto3, "text/html, application/json;q=0.5, " + proto: proto3, "application/json, " + proto + ";q=0.9": asJSON,
		"text/html": "", "application/yaml": "",
	} {
		w := get(t, s, "/openapi/v3/apis/node.k8s.io/v1", accept)
		if got := w.Header().Get("Content-Type"); want != "" && (w.Code != http.StatusOK || got != want) || want == "" && w.Code != http.StatusNotAcceptable {
			t.Errorf("%q: got %d %s, want %q", accept, w.Code, got, want)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/openapi/v3/api/v1", nil)
	r.Header.Set("Accept-Encoding", "br, gzip")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	plain := get(t, s, "/openapi/v3/api/v1", "").Body.Len()
	if w.Header().Get("Content-Encoding") != "gzip" || w.Body.Len()*5 > plain {
		t.Errorf("got %q and %d of %d bytes, want them compressed", w.Header().Get("Content-Encoding"), w.Body.Len(), plain)
	}
}

// TestPathsAndOperationsAreUpstreams holds what there is at which path, what it is
// called and tagged, in the first versions of all groups: generated clients have
// functions by these names, in files by these tags. The file was compared with
// upstream's document.
func TestPathsAndOperationsAreUpstreams(t *testing.T) {
	s := New(nil, api.All(), "v1.37.2", func(gv schema.GroupVersion) bool { return gv.Version == "v1" })
	var doc struct {
		Paths               map[string]map[string]json.RawMessage
		SecurityDefinitions map[string]struct{ Type, Name, In string }
		Security            []map[string][]string
	}
	if err := json.Unmarshal(get(t, s, "/openapi/v2", "application/json").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	var lines []string
	for path, methods := range doc.Paths {
		for method, raw := range methods {
			var op struct {
				OperationID string
				Tags        []string
			}
			if method == "parameters" || json.Unmarshal(raw, &op) != nil {
				continue
			}
			if before := ids[op.OperationID]; before != "" {
				t.Errorf("%s is the name at %s and at %s", op.OperationID, before, path)
			}
			ids[op.OperationID] = path
			lines = append(lines, fmt.Sprintf("%s %s %s %s\n", path, method, op.OperationID, strings.Join(op.Tags, ",")))
		}
	}
	slices.Sort(lines)
	texttest.File(t, "testdata/operations.txt", strings.Join(lines, ""))
	if got := doc.SecurityDefinitions["BearerToken"]; got.Type != "apiKey" || got.Name != "authorization" || got.In != "header" || len(doc.Security) != 1 || doc.Security[0]["BearerToken"] == nil {
		t.Errorf("got security %v by %+v, want tokens in the header authorization", doc.Security, got)
	}
}

func TestEveryPathIsInTheDocumentOfItsRoot(t *testing.T) {
	s := service()
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(get(t, s, "/openapi/v3", "application/json").Body.Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"version": "/version/", "openid/v1/jwks": "/openid/v1/jwks/", ".well-known/openid-configuration": "/.well-known/openid-configuration/",
		"api": "/api/", "apis": "/apis/", "apis/apps": "/apis/apps/", "api/v1": "/api/v1/watch/namespaces/{namespace}/pods/{name}", "apis/apps/v1": "/apis/apps/v1/",
	} {
		w := get(t, s, index.Paths[name].ServerRelativeURL, "application/json")
		var doc spec3.OpenAPI
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
			t.Fatalf("%s: %v %s", name, err, w.Body)
		}
		if p := doc.Paths.Paths[path]; p == nil || p.Get == nil || doc.Components.SecuritySchemes["BearerToken"] == nil {
			t.Errorf("%s has no operation at %s, or no token", name, path)
		}
	}
}

// TestConnectionsAndLogsHaveTheirQuery holds the query parameters of the paths of
// connections and logs, which generated clients send them by.
func TestConnectionsAndLogsHaveTheirQuery(t *testing.T) {
	type parameter struct {
		Ref                         string `json:"$ref"`
		Name, In, Description, Type string
		Schema                      struct{ Type string }
	}
	type item struct {
		Parameters []parameter
		Get        struct{ Description string }
	}
	pod := "/api/v1/namespaces/{namespace}/pods/{name}/"
	for _, version := range []string{"/openapi/v2", "/openapi/v3/api/v1"} {
		var doc struct {
			Paths      map[string]item
			Parameters map[string]parameter
		}
		if err := json.Unmarshal(get(t, service(), version, "application/json").Body.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{
			pod + "exec":                        "command=string container=string stderr=boolean stdin=boolean stdout=boolean tty=boolean",
			pod + "attach":                      "container=string stderr=boolean stdin=boolean stdout=boolean tty=boolean",
			pod + "portforward":                 "ports=integer",
			pod + "proxy":                       "path=string",
			pod + "proxy/{path}":                "path=string",
			pod + "log":                         "container=string follow=boolean insecureSkipTLSVerifyBackend=boolean limitBytes=integer pretty=string previous=boolean sinceSeconds=integer stream=string tailLines=integer timestamps=boolean",
			"/api/v1/nodes/{name}/proxy":        "path=string",
			"/api/v1/nodes/{name}/proxy/{path}": "path=string",
			pod + "status":                      "pretty=string",
		} {
			var got []string
			for _, p := range doc.Paths[path].Parameters {
				if shared, ok := doc.Parameters[strings.TrimPrefix(p.Ref, "#/parameters/")]; ok {
					p = shared
				}
				if p.In != "query" {
					continue
				}
				got = append(got, p.Name+"="+p.Type+p.Schema.Type)
				if p.Description == "" {
					t.Errorf("%s: %s has parameter %s without a description", version, path, p.Name)
				}
			}
			if got := strings.Join(got, " "); got != want {
				t.Errorf("%s: %s has parameters %q, want %q", version, path, got, want)
			}
		}
		if got, want := doc.Paths[pod+"exec"].Get.Description, "connect GET requests to exec of Pod"; got != want {
			t.Errorf("%s: got description %q of exec, want %q", version, got, want)
		}
	}
}
