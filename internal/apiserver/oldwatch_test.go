package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kemudi/kemudi/internal/apiserver/answer"
	"github.com/kemudi/kemudi/internal/apiserver/request"
)

// TestOldPathsOfWatches: before lists had the parameter there were paths that
// watch, and documents name them still.
func TestOldPathsOfWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.must(201, "POST", "/api/v1/nodes", `{"metadata":{"name":"one"}}`)
		f.must(201, "POST", "/api/v1/nodes", `{"metadata":{"name":"two"}}`)
		for _, namespace := range []string{"default", "other"} {
			f.must(201, "POST", "/api/v1/namespaces/"+namespace+"/configmaps", `{"metadata":{"name":"one"}}`)
			f.must(201, "POST", "/api/v1/namespaces/"+namespace+"/configmaps", `{"metadata":{"name":"two"}}`)
		}
		for path, want := range map[string]string{
			"/api/v1/watch/nodes":                                          "/one /two",
			"/api/v1/watch/nodes/two":                                      "/two",
			"/api/v1/watch/configmaps":                                     "default/one default/two other/one other/two",
			"/api/v1/watch/namespaces/other/configmaps":                    "other/one other/two",
			"/api/v1/watch/namespaces/other/configmaps/one":                "other/one",
			"/api/v1/watch/namespaces/other/configmaps/one?watch=false":    "other/one",
			"/api/v1/watch/configmaps?fieldSelector=metadata.name%3Dtwo":   "default/two other/two",
			"/apis/apps/v1/watch/namespaces/default/deployments/none":      "",
			"/apis/apps/v1/watch/deployments":                              "",
			"/api/v1/watch/namespaces":                                     "",
			"/api/v1/watch/namespaces/default":                             "",
			"/apis/rbac.authorization.k8s.io/v1/watch/clusterroles/absent": "",
		} {
			mark := "?"
			if strings.Contains(path, "?") {
				mark = "&"
			}
			var got []string
			for line := range strings.Lines(f.must(200, "GET", path+mark+"timeoutSeconds=1", "")) {
				event := decoded[struct {
					Type   string
					Object struct {
						Metadata struct{ Namespace, Name string }
					}
				}](t, line)
				if event.Type != "ADDED" {
					t.Errorf("%s: got %s, want ADDED", path, line)
				}
				got = append(got, event.Object.Metadata.Namespace+"/"+event.Object.Metadata.Name)
			}
			if got := strings.Join(got, " "); got != want {
				t.Errorf("%s: got %q, want %q", path, got, want)
			}
		}
		for _, path := range []string{"/api/v1/watch/nothings", "/api/v1/watch/namespaces/default/nodes"} {
			f.must(404, "GET", path, "")
		}
	})
}

// TestEventsOfManyObjectsAreThoseOfEach: the initial events of a watch are made in
// another way when there are many.
func TestEventsOfManyObjectsAreThoseOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for i := range answer.Few + 8 {
			f.must(201, "POST", mapsPath, fmt.Sprintf(`{"metadata":{"name":"m%02d"},"data":{"a":"%0*d"}}`, i, i*10, i))
		}
		for _, kind := range []string{request.JSON, request.Proto + ";stream=watch"} {
			all := f.must(200, "GET", mapsPath+"?watch=1&timeoutSeconds=1", "", "Accept: "+kind)
			length := 0
			for i := range answer.Few + 8 {
				one := f.must(200, "GET", fmt.Sprintf("%s?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%%3Dm%02d", mapsPath, i), "", "Accept: "+kind)
				if length += len(one); !strings.Contains(all, one) || one == "" {
					t.Errorf("%s: the event of m%02d among all is not %q", kind, i, one)
				}
			}
			if len(all) != length {
				t.Errorf("%s: got %d bytes of all, want %d", kind, len(all), length)
			}
		}
	})
}
