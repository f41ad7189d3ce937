package gateway

import (
	"cmp"
	"regexp"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// grpc reads the rules of a GRPCRoute: calls are requests of HTTP/2 for /SERVICE/METHOD.
func (b *builder) grpc(r *gatewayv1.GRPCRoute) {
	for i := range r.Spec.Rules {
		rule := &r.Spec.Rules[i]
		var bad *fault
		matches := []route.Rule{{Path: "/", Type: route.Prefix}}
		if len(rule.Matches) > 0 {
			matches = nil
			for m := range rule.Matches {
				one, f := grpcMatch(&rule.Matches[m])
				if f != nil {
					bad = f
					continue
				}
				matches = append(matches, one)
			}
		}
		do := route.Action{}
		if f := b.filters(&do, asHTTP(rule.Filters)); f != nil {
			bad = f
		}
		for n := range rule.BackendRefs {
			ref := &rule.BackendRefs[n]
			backend := b.weighted(&ref.BackendRef)
			own := route.Action{}
			if f := b.filters(&own, asHTTP(ref.Filters)); f != nil {
				bad = f
			}
			if len(own.Mirrors) > 0 {
				bad = faultf(gatewayv1.RouteReasonUnsupportedValue, "filters of a backend may change headers: others are for the whole rule")
			}
			backend.Request, backend.Response = own.Request, own.Response
			do.Backends = append(do.Backends, backend)
		}
		b.add(matches, do, bad)
	}
	b.end()
}

// asHTTP are filters of calls as those of requests, which they are.
func asHTTP(list []gatewayv1.GRPCRouteFilter) (out []gatewayv1.HTTPRouteFilter) {
	for i := range list {
		f := &list[i]
		out = append(out, gatewayv1.HTTPRouteFilter{
			Type: gatewayv1.HTTPRouteFilterType(f.Type), RequestHeaderModifier: f.RequestHeaderModifier, ResponseHeaderModifier: f.ResponseHeaderModifier, RequestMirror: f.RequestMirror,
		})
	}
	return out
}

// grpcMatch is what a call must be.
func grpcMatch(m *gatewayv1.GRPCRouteMatch) (out route.Rule, bad *fault) {
	out.Path, out.Type = "/", route.Prefix
	if p := m.Method; p != nil {
		service, method := ptr.Deref(p.Service, ""), ptr.Deref(p.Method, "")
		if ptr.Deref(p.Type, gatewayv1.GRPCMethodMatchExact) == gatewayv1.GRPCMethodMatchRegularExpression {
			out.Type, out.Rank = route.Whole, len(service)+len(method)+1
			bad = cmp.Or(expression(service, "service"), expression(method, "method"))
			out.Path = "/(?:" + cmp.Or(service, "[^/]+") + ")/(?:" + cmp.Or(method, "[^/]+") + ")"
		} else {
			switch {
			case service != "" && method != "":
				out.Path, out.Type = "/"+service+"/"+method, route.Exact
			case service != "":
				out.Path = "/" + service
			case method != "":
				out.Path, out.Type, out.Rank = "/[^/]+/"+regexp.QuoteMeta(method), route.Whole, 1 // after all that name a service
			}
		}
	}
	when := route.When{}
	for _, h := range m.Headers {
		one := route.Match{Name: string(h.Name), Value: h.Value, Pattern: ptr.Deref(h.Type, gatewayv1.GRPCHeaderMatchExact) == gatewayv1.GRPCHeaderMatchRegularExpression}
		if one.Pattern {
			bad = cmp.Or(bad, expression(h.Value, "header"))
		}
		if !named(when.Headers, one.Name, true) {
			when.Headers = append(when.Headers, one)
		}
	}
	if len(when.Headers) > 0 {
		out.When = &when
	}
	return out, bad
}
