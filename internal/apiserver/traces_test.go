package apiserver

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/obs/tracing/collector"
	"github.com/kemudi/kemudi/internal/task"
)

// answered returns when all requests have been answered, their spans included.
func (f *fixture) answered() {
	if f.over {
		f.http.Close()
	}
}

// tracedTo has a server send so many of a million traces to c. The result ends that, when all has been sent.
func tracedTo(tb testing.TB, c *collector.Collector, rate int32) (option func(o *Options), end func()) {
	tb.Helper()
	p, err := tracing.New(tb.Context(), tracing.Options{
		Config: &tracing.Config{Endpoint: &c.Address, SamplingRatePerMillion: ptr.To(rate)}, Part: "apiserver", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	g := task.NewGroup(context.WithoutCancel(tb.Context()))
	g.Go("tracing", p.Run)
	end = func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			tb.Error(err)
		}
	}
	tb.Cleanup(end)
	return func(o *Options) { o.Tracing = p }, end
}

const everyTrace = 1_000_000

func TestRequestsAreTraced(t *testing.T) {
	c := collector.New(t)
	option, end := tracedTo(t, c, everyTrace)
	f := newFixture(t, option)
	const nodes = "/api/v1/nodes"
	f.must(201, "POST", nodes, `{"metadata":{"name":"fake"}}`, "User-Agent: tracing.test/1", "Accept: application/vnd.kubernetes.protobuf", "Audit-Id: told")
	f.must(200, "GET", nodes+"/fake", "")
	f.must(200, "GET", nodes+"?limit=5", "")
	f.must(200, "PUT", nodes+"/fake", `{"metadata":{"name":"fake","annotations":{"foo":"bar"}}}`)
	f.must(200, "PATCH", nodes+"/fake", `{"metadata":{"labels":{"hello":"world"}}}`, "Content-Type: application/merge-patch+json")
	f.must(200, "DELETE", nodes+"/fake", "")
	f.must(404, "GET", "/api/v1/namespaces/default/pods/none/status", "")
	f.must(200, "GET", "/version", "")
	f.answered()
	end()

	post := c.The("POST /api/v1/nodes")
	for key, want := range map[string]string{
		"http.request.method": "POST", "url.path": nodes, "http.target": nodes, "user_agent.original": "tracing.test/1", "audit-id": "told", "http.response.status_code": "201",
	} {
		if post.About[key] != want {
			t.Errorf("%s of the request: got %q, want %q", key, post.About[key], want)
		}
	}
	for _, filter := range []string{"authorization", "constrainedimpersonation", "priorityandfairness"} {
		c.Within(post, filter)
	}
	create, stored, sent := c.Within(post, "Create"), c.Within(post, "Create etcd3"), c.Within(post, "SerializeObject")
	for key, want := range map[string]string{"url": nodes, "user-agent": "tracing.test/1", "audit-id": "told", "resource": "nodes", "verb": "POST", "scope": "cluster"} {
		if create.About[key] != want {
			t.Errorf("%s of Create: got %q, want %q", key, create.About[key], want)
		}
	}
	hasEvents(t, create, "limitedReadBody succeeded", "About to convert to expected version", "Conversion done", "About to store object in database",
		"Write to database call succeeded", "About to write a response", "Writing http response done")
	if stored.Above != create.ID || stored.About["key"] != "/minions/fake" || stored.About["resource"] != "nodes" || stored.About["audit-id"] != "told" {
		t.Errorf("Create etcd3: got %+v, want it in %+v", stored, create)
	}
	hasEvents(t, stored, "About to Encode", "Encode succeeded", "Txn call succeeded")
	if sent.Above != create.ID || sent.About["mediaType"] != "application/vnd.kubernetes.protobuf" {
		t.Errorf("SerializeObject: got %+v, want it in %+v", sent, create)
	}
	hasEvents(t, sent, "About to start writing response", "Write call succeeded")

	got := c.The("GET /api/v1/nodes/{:name}")
	hasEvents(t, c.Within(got, "Get"), "About to Get from storage", "About to write a response", "Writing http response done")
	c.Within(got, "cacher.Get")
	list := c.The("GET /api/v1/nodes")
	hasEvents(t, c.Within(list, "List"), "Writing http response done")
	hasEvents(t, c.Within(list, "cacher.GetList"), "Filtered items")
	put := c.The("PUT /api/v1/nodes/{:name}")
	hasEvents(t, c.Within(put, "Update"), "About to store object in database", "Write to database call succeeded")
	hasEvents(t, c.Within(put, "GuaranteedUpdate etcd3"), "About to Encode", "Transaction committed")
	patch := c.The("PATCH /api/v1/nodes/{:name}")
	hasEvents(t, c.Within(patch, "Patch"), "Recorded the audit event", "About to apply patch", "About to check admission control", "Object stored in database")
	hasEvents(t, c.Within(c.The("DELETE /api/v1/nodes/{:name}"), "Delete"), "About to delete object from database", "Object deleted from database")
	if none := c.The("GET /api/v1/namespaces/{:namespace}/pods/{:name}/status"); none.About["http.response.status_code"] != "404" || none.Failed {
		t.Errorf("what is not there: got %+v, want 404, which is no failure of the server", none)
	}
	c.The("GET") // of a path that is no resource
	if n := len(c.Spans("authentication")); n != 8 {
		t.Errorf("authentication: got %d spans, want one of each request", n)
	}
}

// hasEvents holds that a span has events in this order; others may be between them.
func hasEvents(t *testing.T, s *collector.Span, names ...string) {
	t.Helper()
	left := names
	for _, e := range s.Events {
		if len(left) > 0 && e == left[0] {
			left = left[1:]
		}
	}
	if len(left) > 0 {
		t.Errorf("events of %s: got %q, want %q in this order", s.Name, s.Events, names)
	}
}

// Who may say so has requests traced, and goes on with them in a trace; of others a new one begins.
func TestOnlyAdministratorsSayWhatIsTraced(t *testing.T) {
	for name, test := range map[string]struct {
		by     user.Info
		rate   int32
		traces int // the request's spans that are in the client's trace
		links  int
	}{
		"an administrator, of what is not traced by itself": {admin, 0, 1, 0},
		"a monitor":                            {&user.DefaultInfo{Name: "m", Groups: []string{user.MonitoringGroup}}, 0, 1, 0},
		"another":                              {&user.DefaultInfo{Name: "m", Groups: []string{user.AllAuthenticated}}, 0, 0, 0},
		"another, of what is traced by itself": {&user.DefaultInfo{Name: "m", Groups: []string{user.AllAuthenticated}}, everyTrace, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := collector.New(t)
			option, end := tracedTo(t, c, test.rate)
			f := newFixture(t, option, func(o *Options) { o.Authenticator = always(test.by) })
			f.must(200, "GET", "/api/v1/nodes", "", "Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
			f.answered()
			end()
			traces, links := 0, 0
			for _, s := range c.Spans("GET /api/v1/nodes") {
				if s.Trace == "4bf92f3577b34da6a3ce929d0e0e4736" && s.Above == "00f067aa0ba902b7" {
					traces++
				}
				links += len(s.Links)
			}
			if traces != test.traces || links != test.links {
				t.Errorf("got %d in the client's trace and %d links, want %d and %d", traces, links, test.traces, test.links)
			}
			if test.rate == 0 && test.traces == 0 && len(c.Spans("")) > 0 {
				t.Errorf("got %s, want nothing", c.Names())
			}
		})
	}
}

// A watch has its span when it ends, one that begins with what there is one of that beginning as well.
func TestWatchesAreTraced(t *testing.T) {
	c := collector.New(t)
	option, end := tracedTo(t, c, everyTrace)
	t.Run("all", func(t *testing.T) { // which returns when they have ended, the servers included
		over(t, func(t *testing.T, transport func(t *testing.T) *http.Transport) { watchTraced(t, option, transport(t)) })
	})
	end()
	plain, lists := 0, 0
	for _, s := range c.Spans("GET /api/v1/namespaces/{:namespace}/configmaps") {
		switch {
		case s.About["http.response.status_code"] != "200":
			t.Errorf("got %+v, want 200", s)
		case strings.Contains(s.About["http.target"], "sendInitialEvents"):
			lists++
			c.Within(s, "WatchList")
			hasEvents(t, c.Within(s, "WatchServer.HandleHTTP"), "About to start writing response", "Writing initial events done")
		default:
			plain++
			c.Within(s, "cacher.Watch")
		}
	}
	if plain != 2 || lists != 2 {
		t.Errorf("got %d watches and %d of them that begin with what there is, want 2 and 2: %s", plain, lists, c.Names())
	}
}

// watchTraced watches in both ways, for a second.
func watchTraced(t *testing.T, option func(o *Options), by *http.Transport) {
	f := newFixture(t, option)
	base := "https://" + f.serveTLS()
	for _, query := range []string{"?watch=1&timeoutSeconds=1", "?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/v1/namespaces/default/configmaps"+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := by.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Error(err)
		}
		_ = res.Body.Close()
	}
}

// Parts of the process are traced as if they had asked over HTTP, and in the trace that they are in.
func TestCallsFromWithinAreTraced(t *testing.T) {
	c := collector.New(t)
	option, end := tracedTo(t, c, everyTrace)
	var p *tracing.Provider
	f := newFixture(t, option, func(o *Options) { p = o.Tracing })
	ctx, span := p.Start(t.Context(), "the part's own")
	maps := client.For(f.As(admin, "part"), core.ConfigMaps)
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(t.Context(), "default", "none"); err == nil {
		t.Fatal("got an object that is not there")
	}
	span.End()
	end()
	post := c.Within(c.The("the part's own"), "POST /api/v1/namespaces/{:namespace}/configmaps")
	if post.About["user_agent.original"] != "part" || post.About["url.path"] != "/api/v1/namespaces/default/configmaps" || post.About["http.response.status_code"] != "201" || post.Kind != "server" {
		t.Errorf("got %+v", post)
	}
	c.Within(c.Within(post, "Create"), "Create etcd3")
	if get := c.The("GET /api/v1/namespaces/{:namespace}/configmaps/{:name}"); get.About["http.response.status_code"] != "404" {
		t.Errorf("got %+v, want 404", get)
	}
	if all := c.Spans(""); slices.ContainsFunc(all, func(s *collector.Span) bool { return s.Name == "" }) {
		t.Errorf("got spans without a name: %s", c.Names())
	}
}

// BenchmarkTracedGetPod is BenchmarkHandlerGetPod where requests are traced: one in a million, or all.
func BenchmarkTracedGetPod(b *testing.B) {
	for name, rate := range map[string]int32{"few": 1, "all": everyTrace} {
		b.Run(name, func(b *testing.B) {
			c := collector.New(b)
			option, _ := tracedTo(b, c, rate)
			f := newFixture(b, option)
			fill(b, f, 10)
			r := httptest.NewRequest("GET", "/api/v1/namespaces/ns-3/pods/web-6d4b75cb6d-00003", nil)
			r.Header.Set("Accept", request.JSON)
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				f.serve(b, r, 200)
			}
		})
	}
}
