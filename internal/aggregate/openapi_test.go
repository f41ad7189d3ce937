package aggregate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/util/proto"

	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/client"
)

// swagger is the document of a server of the samples, which says more than it may. says is the description of its kind.
func swagger(says string) string {
	marked := func(group, version, kind string) string {
		return fmt.Sprintf(`{"group":%q,"version":%q,"kind":%q}`, group, version, kind)
	}
	answer := func(id, model string) string {
		return `{"get":{"operationId":"` + id + `","parameters":[{"$ref":"#/parameters/pretty-x"}],"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/` + model + `"}}}}}`
	}
	return `{"swagger":"2.0","info":{"title":"sample","version":"1"},"paths":{
		"/apis/wardle.example.com/v1alpha1/namespaces/{namespace}/flunders/{name}":` + answer("readFlunder", "com.example.Flunder") + `,
		"/apis/wardle.example.com/v1beta1/flunders":` + answer("ofAnotherVersion", "com.example.Other") + `,
		"/api/v1/pods":` + answer("listPods", "com.example.Other") + `},
	"parameters":{"pretty-x":{"name":"pretty","in":"query","type":"string"},"unused":{"name":"u","in":"query","type":"string"}},
	"definitions":{
		"com.example.Flunder":{"type":"object","description":"` + says + `","properties":{"metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},"status":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Status"}},
			"x-kubernetes-group-version-kind":[` + marked("wardle.example.com", "v1alpha1", "Flunder") + `,` + marked("", "v1", "Pod") + `]},
		"com.example.Other":{"type":"object"},
		"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":{"type":"object","description":"of an older release"},
		"io.k8s.apimachinery.pkg.apis.meta.v1.Status":{"type":"object","description":"an older one too"}
	}}`
}

// both reads the document as kubectl does, by client-go, and as JSON, and holds that there is the same in them.
func (b *bed) both() (proto.Models, map[string]json.RawMessage) {
	b.t.Helper()
	c, err := clientdiscovery.NewDiscoveryClientForConfig(&rest.Config{Host: b.url, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		b.t.Fatal(err)
	}
	doc, err := c.OpenAPISchema()
	if err != nil {
		b.t.Fatal(err)
	}
	var text struct{ Paths, Definitions, Parameters map[string]json.RawMessage }
	if err := json.Unmarshal([]byte(b.must(200, "GET /openapi/v2", "")), &text); err != nil {
		b.t.Fatal(err)
	}
	names := map[string][]string{}
	for _, p := range doc.Paths.Path {
		names["paths"] = append(names["paths"], p.Name)
	}
	for _, d := range doc.Definitions.AdditionalProperties {
		names["definitions"] = append(names["definitions"], d.Name)
	}
	for _, p := range doc.Parameters.AdditionalProperties {
		names["parameters"] = append(names["parameters"], p.Name)
	}
	for what, want := range map[string]map[string]json.RawMessage{"paths": text.Paths, "definitions": text.Definitions, "parameters": text.Parameters} {
		if !slices.Equal(slices.Sorted(slices.Values(names[what])), slices.Sorted(maps.Keys(want))) {
			b.t.Errorf("%s: got %d as protobuf, want the %d of JSON", what, len(names[what]), len(want))
		}
	}
	models, err := proto.NewOpenAPIData(doc)
	if err != nil {
		b.t.Fatal(err)
	}
	for name, path := range text.Paths {
		text.Definitions[name] = path
	}
	return models, text.Definitions
}

func TestDocumentsOfOthersArePartOfThatOfVersion2(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var says atomic.Pointer[string]
	var asked, known atomic.Int32
	say := func(s string) { says.Store(&s) }
	say("one")
	b.sample(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/openapi/v2" {
			http.NotFound(w, r)
			return
		}
		asked.Add(1)
		tag := `"` + *says.Load() + `"`
		w.Header().Set("Etag", tag)
		if r.Header.Get("If-None-Match") == tag {
			known.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, swagger(*says.Load()))
	})
	const flunder, path = "com.example.Flunder", "/apis/wardle.example.com/v1alpha1/namespaces/{namespace}/flunders/{name}"
	described := func() string {
		var doc struct {
			Definitions map[string]struct{ Description string }
		}
		if err := json.Unmarshal([]byte(b.must(200, "GET /openapi/v2", "")), &doc); err != nil {
			t.Fatal(err)
		}
		return doc.Definitions[flunder].Description
	}
	b.until(func() bool { return described() == "one" })

	models, text := b.both()
	kind, ok := models.LookupModel(flunder).(*proto.Kind)
	if !ok || kind.GetDescription() != "one" || kind.Fields["metadata"] == nil {
		t.Fatalf("got %#v of what kubectl explains", models.LookupModel(flunder))
	}
	if got := fmt.Sprint(kind.GetExtensions()["x-kubernetes-group-version-kind"]); !strings.Contains(got, "Flunder") || strings.Contains(got, "Pod") {
		t.Errorf("got kinds %s, want that of its own group-version alone", got)
	}
	for name, want := range map[string]string{
		path: `"operationId":"readFlunder"`, "/api/v1/pods": "", "/apis/wardle.example.com/v1beta1/flunders": "", "com.example.Other": "",
		"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":    "ObjectMeta is metadata that all persisted resources must have",
		"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2": "of an older release",
		flunder: `"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2"`,
	} {
		if got := string(text[name]); (got == "") != (want == "") && name != "/api/v1/pods" || !strings.Contains(got, want) || strings.Contains(got, "listPods") {
			t.Errorf("%s: got %.300s, want %q", name, got, want)
		}
	}

	tag := b.ask("GET /openapi/v2", "").header.Get("Etag")
	if got := b.ask("GET /openapi/v2", "", "If-None-Match: "+tag, "Accept: application/com.github.proto-openapi.spec.v2@v1.0+protobuf"); got.code != http.StatusNotModified {
		t.Errorf("by its tag: got %d, want 304", got.code)
	}
	// It is asked again when its endpoints change, and what has not changed does not come again.
	before := asked.Load()
	b.endpoints("api-2", true, podAddress)
	b.until(func() bool { return asked.Load() > before && known.Load() > 0 })
	if got := b.ask("GET /openapi/v2", "").header.Get("Etag"); got != tag {
		t.Errorf("tag: got %s of the same document, want %s", got, tag)
	}
	say("two")
	b.endpoints("api-3", true, podAddress)
	b.until(func() bool { return described() == "two" })

	for _, name := range []string{"api-1", "api-2", "api-3"} {
		if err := client.For(b.plane.Admin(), discovery.EndpointSlices).Delete(t.Context(), "default", name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.await("False EndpointsNotFound")
	if got := described(); got != "two" {
		t.Errorf("while the server is away: got %q, want what was known", got)
	}
	if err := client.For(b.plane.Admin(), apiregistration.APIServices).Delete(t.Context(), "", "v1alpha1.wardle.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.until(func() bool { return described() == "" })
	_, text = b.both()
	if text[path] != nil || text["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2"] != nil {
		t.Error("what the server had is still there when it is gone")
	}
}

func TestDocumentsOfOthersThatAreNoneHarmNobody(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var asked atomic.Int32
	b.sample(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v2" {
			asked.Add(1)
			fmt.Fprint(w, `{"paths":{"/apis/wardle.example.com/v1alpha1/flunders":`)
			return
		}
		http.NotFound(w, r)
	})
	b.until(func() bool { return asked.Load() > 0 })
	models, text := b.both()
	if models.LookupModel("io.k8s.api.core.v1.Pod") == nil || len(text) < 1000 {
		t.Errorf("got %d paths and models, want those of this server", len(text))
	}
}
