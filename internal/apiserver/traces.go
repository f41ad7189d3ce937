package apiserver

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/obs/tracing"
)

// seen has a filter, with all that follows it, seen in traces by upstream's name.
func (s *Server) seen(name string, filter func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	if s.o.Tracing == nil {
		return filter
	}
	return func(next http.Handler) http.Handler {
		next = filter(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			st := stateOf(r)
			begin := tracing.Within
			if st.user == nil { // the request has no span yet
				begin = s.o.Tracing.Start
			}
			ctx, span := begin(r.Context(), name)
			defer st.after(span.End)
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// withTracing makes a span of the request. It follows the one that says who asks: only some are believed when they
// say that their trace is sent.
func (s *Server) withTracing(next http.Handler) http.Handler {
	if s.o.Tracing == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		st := stateOf(r)
		ctx, span := s.o.Tracing.Serve(r, tracing.Request{
			Name: spanName(r.Method, st.info), Believed: mayTrace(st.user), About: []tracing.Attribute{tracing.Text("audit-id", auditID(w.Header().Get("Audit-Id")))},
		})
		st.span = span
		defer st.after(func() {
			span.Answered(st.code, st.wrote)
			span.End()
		})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// mayTrace reports whom upstream lets say that a request is traced.
func mayTrace(u user.Info) bool {
	return slices.ContainsFunc(u.GetGroups(), func(g string) bool { return g == user.SystemPrivilegedGroup || g == user.MonitoringGroup })
}

// auditID is as much of an ID as is told of spans: clients may make up their own.
func auditID(id string) string {
	const longest = 64
	return id[:min(len(id), longest)]
}

// spanName is the form of a request's path, without the names in it.
func spanName(method string, in *request.Info) string {
	if !in.Resource {
		return method
	}
	name := method + " /api/"
	if in.Group != "" {
		name = method + " /apis/" + in.Group + "/"
	}
	name += in.Version
	if in.Namespace != "" {
		name += "/namespaces/{:namespace}"
	}
	name += "/" + in.Plural
	if in.Name != "" {
		name += "/{:name}"
	}
	if in.Sub != "" {
		name += "/" + in.Sub
	}
	return name
}

// trace makes a span of a call from within the process, as if it had come over HTTP, and one of what it does. It
// returns what ends both. Their trace is that of ctx.
func (l *local) trace(ctx context.Context, c *call.Call, r *client.Request) (_ context.Context, end func(code *int)) {
	method := cmp.Or(client.Method(c.Verb), http.MethodGet) // of lists and watches
	uri, err := url.ParseRequestURI(localURI(c, r))
	if err != nil {
		uri = &url.URL{} // a name that no path can have
	}
	as := &http.Request{Method: method, URL: uri, Header: http.Header{"User-Agent": {l.agent}}}
	ctx, span := l.s.o.Tracing.Serve(as.WithContext(ctx), tracing.Request{Believed: true, Name: spanName(method, &request.Info{
		Resource: true, Group: c.Resource.GVK.Group, Version: c.Resource.GVK.Version, Namespace: c.Namespace, Plural: c.Resource.Def.Plural, Name: c.Name, Sub: r.Sub,
	})})
	if span == nil {
		return ctx, func(*int) {}
	}
	ctx = traceCall(ctx, c, tracing.Text("url", uri.Path))
	return ctx, func(code *int) {
		c.Trace.End()
		span.Answered(*code, 0)
		span.End()
	}
}

// tracedAs is what upstream calls a verb in traces, and what happens while it runs.
type tracedAs struct {
	name         string
	before       []string
	done, failed string
}

// traced are the verbs as upstream traces them.
var traced = map[string]tracedAs{
	"get":              {name: "Get", before: []string{"About to Get from storage"}},
	"list":             {name: "List"},
	"watch":            {name: "WatchList"}, // one that begins with what there is
	"create":           {name: "Create", before: []string{"About to store object in database"}, done: "Write to database call succeeded", failed: "Write to database call failed"},
	"update":           {name: "Update", before: []string{"About to store object in database"}, done: "Write to database call succeeded", failed: "Write to database call failed"},
	"patch":            {name: "Patch", before: []string{"Recorded the audit event", "About to apply patch"}, done: "Object stored in database"},
	"delete":           {name: "Delete", before: []string{"Decoded delete options", "Recorded the audit event", "About to delete object from database"}, done: "Object deleted from database"},
	"deletecollection": {name: "Delete"},
}

// traceCall begins the span of what a call does, within that of its request, which ctx has.
func traceCall(ctx context.Context, c *call.Call, about ...tracing.Attribute) context.Context {
	is := c.Resource.GVK
	ctx, c.Trace.Span = tracing.Within(ctx, traced[c.Verb].name, append(about,
		tracing.Text("verb", metricVerb(c.Verb, "")), tracing.Text("api-group", is.Group), tracing.Text("api-version", is.Version),
		tracing.Text("resource", c.Resource.Def.Plural), tracing.Text("subresource", c.SubName()), tracing.Text("namespace", c.Namespace),
		tracing.Text("name", c.Name), tracing.Text("scope", scopeOf(c.Namespace, c.Name)), tracing.Text("user-agent", c.Agent),
		tracing.Text("audit-id", c.Trace.AuditID))...)
	return ctx
}

// trace begins the span of what an HTTP request does, if it is traced, and returns what ends it.
func (p *exchange) trace(ctx context.Context) (_ context.Context, end func()) {
	st, c := stateOf(p.R), p.Call
	if st.span == nil {
		return ctx, func() {}
	}
	c.Trace.AuditID = auditID(p.W.Header().Get("Audit-Id"))
	if c.Verb == "watch" && !strings.Contains(p.R.URL.RawQuery, "sendInitialEvents=true") {
		c.Trace.Span = st.span
		return ctx, func() {}
	}
	client := ""
	if ip := utilnet.GetClientIP(p.R); ip != nil {
		client = ip.String()
	}
	ctx = traceCall(ctx, c, tracing.Text("accept", p.R.Header.Get("Accept")), tracing.Text("client", client),
		tracing.Text("protocol", p.R.Proto), tracing.Text("url", p.R.URL.Path))
	if len(p.Body) > 0 {
		c.Trace.Event("limitedReadBody succeeded", tracing.Number("len", len(p.Body)))
	}
	return ctx, func() { st.after(c.Trace.End) }
}

// runTraced runs a verb, and notes what happens.
func (s *Server) runTraced(ctx context.Context, c *call.Call, v *verb) (outcome, error) {
	as := traced[c.Verb]
	for _, event := range as.before {
		c.Trace.Event(event)
	}
	a, err := v.run(s, ctx, c)
	switch {
	case err == nil && as.done != "":
		c.Trace.Event(as.done)
	case err != nil && as.failed != "":
		c.Trace.Event(as.failed, tracing.Text("err", err.Error()))
	}
	return a, err
}

// traceAnswer begins the span of making and sending the answer.
func (p *exchange) traceAnswer() *tracing.Span {
	c := p.Call
	if c.Trace.Span == nil || c.Verb == "watch" {
		return nil
	}
	c.Trace.Event("About to write a response")
	media := request.JSON
	switch p.Accept.Media {
	case request.MediaProto:
		media = request.Proto
	case request.MediaYAML:
		media = request.YAML
	}
	_, span := c.Trace.Start(p.R.Context(), "SerializeObject", tracing.Text("audit-id", c.Trace.AuditID), tracing.Text("method", p.R.Method),
		tracing.Text("url", p.R.URL.Path), tracing.Text("protocol", p.R.Proto), tracing.Text("mediaType", media))
	return span
}
