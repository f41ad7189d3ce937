package gateway

import (
	"cmp"
	"regexp"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// http reads the rules of an HTTPRoute.
func (b *builder) http(r *gatewayv1.HTTPRoute) {
	for i := range r.Spec.Rules {
		rule := &r.Spec.Rules[i]
		var bad *fault
		matches := []route.Rule{{Path: "/", Type: route.Prefix}}
		if len(rule.Matches) > 0 {
			matches = nil
			for m := range rule.Matches {
				one, f := httpMatch(&rule.Matches[m])
				if f != nil {
					bad = f
					continue
				}
				matches = append(matches, one)
			}
		}
		do := route.Action{}
		if f := b.filters(&do, rule.Filters); f != nil {
			bad = f
		}
		for n := range rule.BackendRefs {
			ref := &rule.BackendRefs[n]
			backend := b.weighted(&ref.BackendRef)
			own := route.Action{}
			if f := b.filters(&own, ref.Filters); f != nil {
				bad = f
			}
			if own.Redirect != nil || own.CORS != nil || len(own.Mirrors) > 0 {
				bad = faultf(gatewayv1.RouteReasonUnsupportedValue, "filters of a backend may change headers and addresses: others are for the whole rule")
			}
			backend.Request, backend.Response, backend.Rewrite = own.Request, own.Response, own.Rewrite
			do.Backends = append(do.Backends, backend)
		}
		if t := rule.Timeouts; t != nil {
			do.Limit, do.Attempt = milliseconds(t.Request), milliseconds(t.BackendRequest)
		}
		if t := rule.Retry; t != nil {
			do.Retry = &route.Retry{Attempts: ptr.Deref(t.Attempts, 1), Backoff: milliseconds(t.Backoff)}
			for _, code := range t.Codes {
				do.Retry.Codes = append(do.Retry.Codes, int(code))
			}
		}
		b.add(matches, do, bad)
	}
	b.end()
}

func milliseconds(d *gatewayv1.Duration) int64 {
	if d == nil {
		return 0
	}
	v, err := time.ParseDuration(string(*d))
	if err != nil {
		return 0 // the schema lets none through
	}
	return v.Milliseconds()
}

func expression(text, of string) *fault {
	if _, err := regexp.Compile(text); err != nil {
		return faultf(gatewayv1.RouteReasonUnsupportedValue, "%s %q is no expression that can be used: %v", of, text, err)
	}
	return nil
}

// httpMatch is what a request must be.
func httpMatch(m *gatewayv1.HTTPRouteMatch) (out route.Rule, bad *fault) {
	out.Path, out.Type = "/", route.Prefix
	if p := m.Path; p != nil {
		out.Path = ptr.Deref(p.Value, "/")
		switch ptr.Deref(p.Type, gatewayv1.PathMatchPathPrefix) {
		case gatewayv1.PathMatchExact:
			out.Type = route.Exact
		case gatewayv1.PathMatchRegularExpression:
			out.Type = route.Whole
			bad = expression(out.Path, "path")
		}
	}
	when := route.When{Method: string(ptr.Deref(m.Method, ""))}
	for _, h := range m.Headers {
		one := route.Match{Name: string(h.Name), Value: h.Value, Pattern: ptr.Deref(h.Type, gatewayv1.HeaderMatchExact) == gatewayv1.HeaderMatchRegularExpression}
		if one.Pattern {
			bad = cmp.Or(bad, expression(h.Value, "header"))
		}
		if !named(when.Headers, one.Name, true) {
			when.Headers = append(when.Headers, one)
		}
	}
	for _, q := range m.QueryParams {
		one := route.Match{Name: string(q.Name), Value: q.Value, Pattern: ptr.Deref(q.Type, gatewayv1.QueryParamMatchExact) == gatewayv1.QueryParamMatchRegularExpression}
		if one.Pattern {
			bad = cmp.Or(bad, expression(q.Value, "parameter"))
		}
		if !named(when.Query, one.Name, false) {
			when.Query = append(when.Query, one)
		}
	}
	if when.Method != "" || len(when.Headers) > 0 || len(when.Query) > 0 {
		out.When = &when
	}
	return out, bad
}

// named says that a name is there already: of several, the first counts.
func named(list []route.Match, name string, fold bool) bool {
	for _, m := range list {
		if m.Name == name || fold && strings.EqualFold(m.Name, name) {
			return true
		}
	}
	return false
}

// filters reads what is done to requests on their way.
func (b *builder) filters(do *route.Action, list []gatewayv1.HTTPRouteFilter) *fault {
	for i := range list {
		f := &list[i]
		switch {
		case f.Type == gatewayv1.HTTPRouteFilterRequestHeaderModifier && f.RequestHeaderModifier != nil:
			do.Request = headers(f.RequestHeaderModifier)
		case f.Type == gatewayv1.HTTPRouteFilterResponseHeaderModifier && f.ResponseHeaderModifier != nil:
			do.Response = headers(f.ResponseHeaderModifier)
		case f.Type == gatewayv1.HTTPRouteFilterRequestRedirect && f.RequestRedirect != nil:
			r := f.RequestRedirect
			do.Redirect = &route.RedirectTo{
				Scheme: ptr.Deref(r.Scheme, ""), Host: string(ptr.Deref(r.Hostname, "")), Port: uint16(ptr.Deref(r.Port, 0)), Path: pathChange(r.Path), Code: ptr.Deref(r.StatusCode, 302),
			}
		case f.Type == gatewayv1.HTTPRouteFilterURLRewrite && f.URLRewrite != nil:
			do.Rewrite = &route.Rewrite{Host: string(ptr.Deref(f.URLRewrite.Hostname, "")), Path: pathChange(f.URLRewrite.Path)}
		case f.Type == gatewayv1.HTTPRouteFilterRequestMirror && f.RequestMirror != nil:
			b.mirror(do, f.RequestMirror)
		case f.Type == gatewayv1.HTTPRouteFilterCORS && f.CORS != nil:
			do.CORS = cors(f.CORS)
		default:
			return faultf(gatewayv1.RouteReasonUnsupportedValue, "filters of type %s are not known here", f.Type)
		}
	}
	return nil
}

func headers(f *gatewayv1.HTTPHeaderFilter) *route.HeaderChange {
	out := &route.HeaderChange{Remove: f.Remove}
	for _, h := range f.Set {
		out.Set = append(out.Set, route.Header{Name: string(h.Name), Value: h.Value})
	}
	for _, h := range f.Add {
		out.Add = append(out.Add, route.Header{Name: string(h.Name), Value: h.Value})
	}
	return out
}

func pathChange(m *gatewayv1.HTTPPathModifier) *route.PathChange {
	switch {
	case m == nil:
		return nil
	case m.Type == gatewayv1.FullPathHTTPPathModifier:
		return &route.PathChange{To: ptr.Deref(m.ReplaceFullPath, "")}
	}
	return &route.PathChange{To: ptr.Deref(m.ReplacePrefixMatch, ""), Prefix: true}
}

func (b *builder) mirror(do *route.Action, m *gatewayv1.HTTPRequestMirrorFilter) {
	to := b.backend(&m.BackendRef)
	if to.Upstream == "" {
		return
	}
	out := route.Mirror{Upstream: to.Upstream, Protocol: to.Protocol, Trust: to.Trust, Part: 1, Of: 1}
	switch {
	case m.Percent != nil:
		out.Part, out.Of = int(*m.Percent), 100
	case m.Fraction != nil:
		out.Part, out.Of = int(m.Fraction.Numerator), int(ptr.Deref(m.Fraction.Denominator, 100))
	}
	do.Mirrors = append(do.Mirrors, out)
}

func cors(f *gatewayv1.HTTPCORSFilter) *route.CORS {
	join := func(n int, at func(int) string) string {
		var list []string
		for i := range n {
			list = append(list, at(i))
		}
		return strings.Join(list, ", ")
	}
	out := &route.CORS{
		Methods: join(len(f.AllowMethods), func(i int) string { return string(f.AllowMethods[i]) }), Headers: join(len(f.AllowHeaders), func(i int) string { return string(f.AllowHeaders[i]) }),
		Expose: join(len(f.ExposeHeaders), func(i int) string { return string(f.ExposeHeaders[i]) }), Credentials: ptr.Deref(f.AllowCredentials, false), MaxAge: int(f.MaxAge), Deep: true,
	}
	if out.MaxAge == 0 {
		out.MaxAge = 5
	}
	for _, o := range f.AllowOrigins {
		out.Origins = append(out.Origins, string(o))
	}
	return out
}
