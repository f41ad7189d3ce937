package apiserver

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kemudi/kemudi/internal/admission"
)

// late is an admission that does not answer for objects that are called so.
type late struct{ stuck }

func (l late) Mutate(ctx context.Context, a *admission.Attributes) error {
	if a.Name == "late" {
		return l.stuck.Mutate(ctx, a)
	}
	return nil
}

func TestEventsBodiesAndTheStoreAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(o *Options) { o.Admission = late{} })
		f.must(201, "POST", mapsPath, cm)
		f.must(201, "POST", mapsPath, strings.Replace(cm, "one", "two", 1))
		f.must(200, "PATCH", mapsPath+"/one", `{"data":{"x":"y"}}`, mergePatch)
		f.must(200, "DELETE", mapsPath+"/two", "")
		f.must(200, "GET", mapsPath+"?watch=1&resourceVersion=1&timeoutSeconds=1", "")
		f.must(200, "GET", mapsPath+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1", "")
		f.must(504, "POST", mapsPath, strings.Replace(cm, "one", "late", 1))
		f.ask("GET", "/api/v1/nodes/none/proxy/x", "")
		got := f.must(200, "GET", "/metrics", "")
		for _, want := range []string{
			`apiserver_watch_events_total{group="",resource="configmaps",version="v1"} 7`,
			`apiserver_watch_events_sizes_count{group="",resource="configmaps",version="v1"} 7`,
			`apiserver_watch_events_sizes_bucket{group="",resource="configmaps",version="v1",le="1024"} 7`,
			`apiserver_watch_list_duration_seconds_count{group="",resource="configmaps",scope="namespace",version="v1"} 1`,
			`etcd_request_duration_seconds_count{group="",operation="create",resource="configmaps"} 2`,
			`group="",resource="nodes",scope="resource",subresource="proxy",verb="CONNECT",version="v1"} 1`,
			`etcd_requests_total{group="",operation="update",resource="configmaps"} 1`,
			`etcd_requests_total{group="",operation="delete",resource="configmaps"} 1`,
			`apiserver_request_body_size_bytes_count{group="",resource="configmaps",verb="create"} `,
			`apiserver_request_body_size_bytes_count{group="",resource="configmaps",verb="patch"} 1`,
			`apiserver_request_terminations_total{code="504",component="apiserver",group="",resource="configmaps",scope="namespace",subresource="",verb="POST",version="v1"} 1`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("/metrics does not have %s", want)
			}
		}
	})
}
