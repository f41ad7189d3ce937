package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kemudi/kemudi/internal/apiserver/budget"
)

// TestMemoryThatRunsOutHoldsUpWhatTakesMuchOfIt from everybody, administrators
// too: the kernel would make no difference either.
func TestMemoryThatRunsOutHoldsUpWhatTakesMuchOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		const limit = 100 << 20
		used := int64(0)
		f.memory = budget.Of(func() int64 { return limit }, func() int64 { return used })
		const maps = "/api/v1/namespaces/default/configmaps"
		created := 0
		create := func(size int) func() int {
			return func() int {
				created++
				body := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"m%d"},"data":{"a":%q}}`, created, strings.Repeat("x", size))
				return f.ask("POST", maps, body, "Content-Type: application/json").Code
			}
		}
		ask := func(method, path string, headers ...string) func() int {
			return func() int {
				w := f.ask(method, path, "", headers...)
				if again := w.Header().Get("Retry-After"); (w.Code == http.StatusTooManyRequests) != (again == "1") {
					t.Errorf("%s %s: got %d with Retry-After %q", method, path, w.Code, again)
				}
				return w.Code
			}
		}
		f.ask("POST", "/api/v1/namespaces", `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default"}}`, "Content-Type: application/json")
		for range 11 { // the list as YAML takes some 45 MB, and little as it is
			create(300 << 10)()
		}
		const free, tight, none = 0, limit * 85 / 100, limit * 96 / 100
		for name, tc := range map[string]struct {
			ask  func() int
			used map[int64]int // what is answered when so much is in use
		}{
			"health":            {ask("GET", "/livez"), map[int64]int{free: 200, tight: 200, none: 200}},
			"small object":      {ask("GET", maps+"/m2"), map[int64]int{free: 200, tight: 200, none: 429}},
			"list":              {ask("GET", maps), map[int64]int{free: 200, tight: 429, none: 429}},
			"list as YAML":      {ask("GET", maps, "Accept: application/yaml"), map[int64]int{free: 200, limit * 60 / 100: 429, tight: 429}},
			"metadata of list":  {ask("GET", maps, "Accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"), map[int64]int{free: 200, tight: 429}},
			"small write":       {create(10), map[int64]int{free: 201, tight: 201, none: 429}},
			"large write":       {create(500 << 10), map[int64]int{free: 201, tight: 429, none: 429}},
			"what makes room":   {ask("DELETE", maps+"/none"), map[int64]int{free: 404, tight: 404, none: 404}},
			"watch from now on": {ask("GET", maps+"?watch=1&timeoutSeconds=1"), map[int64]int{free: 200, tight: 200, none: 429}},
		} {
			for _, use := range []int64{none, tight, limit * 60 / 100, free} { // it recovers
				want, ok := tc.used[use]
				if !ok {
					continue
				}
				time.Sleep(time.Second)
				used = use
				if got := tc.ask(); got != want {
					t.Errorf("%s with %d of %d MiB in use: got %d, want %d", name, use>>20, limit>>20, got, want)
				}
				used = free
				time.Sleep(time.Second)
			}
		}
	})
}
