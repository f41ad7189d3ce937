package tracing

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/stats"
)

// Request says how a request from outside is traced.
type Request struct {
	Name     string
	Server   string // the server's name; empty: as the client has it
	Believed bool   // the client may say that the trace is sent, and go on in it (T3)
	About    []attribute.KeyValue
}

// Serve begins the span of a request that a server answers.
func (p *Provider) Serve(r *http.Request, of Request) (context.Context, *Span) {
	if p == nil {
		return r.Context(), nil
	}
	ctx := propagators.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(requestAttributes(r, of.Server)...), trace.WithAttributes(of.About...),
	}
	if !of.Believed {
		opts = append(opts, trace.WithNewRoot())
		if client := trace.SpanContextFromContext(ctx); client.IsValid() && client.IsRemote() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: client}))
		}
	}
	ctx, s := p.tracer.Start(ctx, of.Name, opts...)
	return ctx, recorded(s)
}

// requestAttributes are what OpenTelemetry has servers tell of a request, and its target.
func requestAttributes(r *http.Request, server string) []attribute.KeyValue {
	if server == "" {
		server = r.Host
	}
	host, port := split(server)
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	about := []attribute.KeyValue{
		semconv.ServerAddress(host), semconv.HTTPRequestMethodKey.String(r.Method), semconv.URLScheme(scheme), semconv.URLPath(r.URL.Path),
		Text("http.target", r.URL.RequestURI()),
	}
	if _, version, ok := strings.Cut(r.Proto, "/"); ok {
		about = append(about, semconv.NetworkProtocolVersion(version))
	}
	if port > 0 {
		about = append(about, semconv.ServerPort(port))
	}
	client, _, _ := strings.Cut(r.Header.Get("X-Forwarded-For"), ",")
	if peer, port := split(r.RemoteAddr); peer != "" {
		about = append(about, semconv.NetworkPeerAddress(peer), semconv.NetworkPeerPort(port))
		if client == "" {
			client = peer
		}
	}
	if client != "" {
		about = append(about, semconv.ClientAddress(client))
	}
	if agent := r.UserAgent(); agent != "" {
		about = append(about, semconv.UserAgentOriginal(agent))
	}
	return about
}

func split(address string) (host string, port int) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	port, _ = strconv.Atoi(text) // 0: it is none
	return host, port
}

// Answered notes how the request of a span was answered; code is 0 if it was not.
func (s *Span) Answered(code int, wrote int64) {
	if s == nil || code == 0 {
		return
	}
	s.SetAttributes(semconv.HTTPResponseStatusCode(code))
	if wrote > 0 {
		s.SetAttributes(semconv.HTTPResponseBodySize(int(wrote)))
	}
	if code >= http.StatusInternalServerError {
		s.SetStatus(codes.Error, "")
	}
}

// Client is a way to send requests, each of which has a span and tells the server of it. Nil: it is the same way.
func (p *Provider) Client(by http.RoundTripper) http.RoundTripper {
	if p == nil {
		return by
	}
	return otelhttp.NewTransport(by, otelhttp.WithPropagators(propagators), otelhttp.WithTracerProvider(p.spans), otelhttp.WithMeterProvider(noop.NewMeterProvider()))
}

// Calls has a span for each call of gRPC, and tells the server of it. Nil has none.
func (p *Provider) Calls() stats.Handler {
	if p == nil {
		return nil
	}
	return otelgrpc.NewClientHandler(otelgrpc.WithPropagators(propagators), otelgrpc.WithTracerProvider(p.spans), otelgrpc.WithMeterProvider(noop.NewMeterProvider()))
}
