package apiserver

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestProfilesAreServedToWhoMayGetThem(t *testing.T) {
	const refused = "/debug/pprof/block"
	f := newFixture(t, func(o *Options) {
		o.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if !a.IsResourceRequest() && a.GetPath() == refused && a.GetVerb() == "get" {
				return authorizer.DecisionNoOpinion, "", nil
			}
			return authorizer.DecisionAllow, "", nil
		})
	})
	if w := f.ask("GET", "/debug/pprof", ""); w.Code != http.StatusFound || w.Header().Get("Location") != "/debug/pprof/" {
		t.Errorf("got %d to %q, want 302 to the list of profiles", w.Code, w.Header().Get("Location"))
	}
	if got := f.must(http.StatusOK, "GET", "/debug/pprof/", ""); !strings.Contains(got, "goroutine") {
		t.Errorf("list of profiles: got %s", got)
	}
	if got := f.must(http.StatusOK, "GET", "/debug/pprof/goroutine?debug=1", ""); !strings.HasPrefix(got, "goroutine profile: total ") {
		t.Errorf("goroutines: got %.200s", got)
	}
	if got := f.must(http.StatusOK, "GET", "/debug/pprof/heap", "", "Accept-Encoding: gzip"); !strings.HasPrefix(got, "\x1f\x8b") {
		t.Errorf("heap: got %.20q, want a profile, packed once", got)
	}
	f.must(http.StatusNotFound, "GET", "/debug/pprof/cmdline", "") // upstream does not show it either
	for dump, want := range map[string]string{"dump_priority_levels": "PriorityLevelName, ActiveQueues, ", "dump_queues": "PriorityLevelName, Index, ", "dump_requests?includeRequestDetails=1": "PriorityLevelName, FlowSchemaName, "} {
		if got := f.must(http.StatusOK, "GET", "/debug/api_priority_and_fairness/"+dump, ""); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s", dump, got)
		}
	}
	if got := f.must(http.StatusOK, "GET", "/", ""); strings.Contains(got, "pprof") {
		t.Errorf("list of paths: got %s, want no profiles in it", got)
	}
	f.must(http.StatusForbidden, "GET", refused, "")

	f = newFixture(t, func(o *Options) { o.NoProfiling = true })
	f.must(http.StatusNotFound, "GET", "/debug/pprof/", "")
	f.must(http.StatusNotFound, "GET", "/debug/pprof/profile", "")
}

// A request that is not long-running would end after a minute.
func TestProfileTakesAsLongAsItIsAskedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, began := newFixture(t), time.Now()
		got := f.must(http.StatusOK, "GET", "/debug/pprof/goroutine?seconds=300", "")
		if took := time.Since(began); took < 5*time.Minute || !strings.HasPrefix(got, "\x1f\x8b") {
			t.Errorf("got %.20q after %s, want a profile of five minutes", got, took)
		}
	})
}
