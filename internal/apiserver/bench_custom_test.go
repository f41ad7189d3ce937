package apiserver

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/custom"
)

// recipes is a definition whose objects are about as large as the ConfigMaps that they are held against.
const recipes = `
metadata: {name: recipes.example.com, uid: u1, generation: 1}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: recipes, singular: recipe, kind: Recipe, listKind: RecipeList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {data: {type: object, additionalProperties: {type: string}}}
`

// BenchmarkCustomBesideBuiltIn writes, reads and lists objects of 2 KB of a kind that is known at run time only, and ConfigMaps
// with the same data.
func BenchmarkCustomBesideBuiltIn(b *testing.B) {
	for _, c := range []struct{ name, apiVersion, kind, path string }{
		{"builtin", "v1", "ConfigMap", "/api/v1/namespaces/default/configmaps"},
		{"custom", "example.com/v1", "Recipe", "/apis/example.com/v1/namespaces/default/recipes"},
	} {
		var data []string
		for i := range 20 {
			data = append(data, fmt.Sprintf(`"key-%d":"%s"`, i, strings.Repeat("value", 18)))
		}
		object := func(i int) string {
			return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"o-%d","labels":{"a":"b"}},"data":{%s}}`, c.apiVersion, c.kind, i, strings.Join(data, ","))
		}
		made := 0
		f := newFixture(b, serves(custom.Define(compiled(b, recipes)).Def))
		do := func(method, path, body string, headers ...string) {
			if w := f.ask(method, path, body, headers...); w.Code >= 300 {
				b.Fatalf("%s %s: got %d %s", method, path, w.Code, w.Body)
			}
		}
		b.Run("create/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do("POST", c.path, object(made))
				made++
			}
		})
		b.Run("patch/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				do("PATCH", c.path+"/o-0", fmt.Sprintf(`{"data":{"key-1":"%d"}}`, n), mergePatch)
				n++
			}
		})
		b.Run("list/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do("GET", c.path+"?limit=500", "")
			}
		})
		b.Run("get/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequestWithContext(b.Context(), "GET", c.path+"/o-0", nil)
			for b.Loop() {
				w := httptest.NewRecorder()
				f.Handler().ServeHTTP(w, r)
			}
		})
	}
}
