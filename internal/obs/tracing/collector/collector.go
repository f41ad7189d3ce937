// Package collector is a collector of traces for tests: it takes what a process sends by OTLP over gRPC, on loopback.
package collector

import (
	"context"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	service "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Collector has what was sent to it.
type Collector struct {
	service.UnimplementedTraceServiceServer
	Address string // host:port

	tb testing.TB
	mu struct {
		sync.Mutex
		spans []*Span
		came  chan struct{} // closed when there are more
	}
}

// Span is one that was sent.
type Span struct {
	Part             string // that has made it: its service.name
	Process          map[string]string
	Name, Kind       string
	Trace, ID, Above string
	About            map[string]string
	Events           []string
	Links            []string // IDs of spans
	Failed           bool
}

// New is a collector that takes spans until the test ends.
func New(tb testing.TB) *Collector {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	c := &Collector{Address: l.Addr().String(), tb: tb}
	c.mu.came = make(chan struct{})
	srv := grpc.NewServer()
	service.RegisterTraceServiceServer(srv, c)
	var served sync.WaitGroup
	served.Go(func() { _ = srv.Serve(l) }) // what does not come is missed
	tb.Cleanup(func() {
		srv.Stop()
		served.Wait()
	})
	return c
}

// ConfigFile is a file that has an API server send so many of a million traces to the collector.
func (c *Collector) ConfigFile(rate int) string {
	c.tb.Helper()
	path := filepath.Join(c.tb.TempDir(), "tracing.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: " + c.Address + "\nsamplingRatePerMillion: " + strconv.Itoa(rate) + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.tb.Fatal(err)
	}
	return path
}

// Export takes spans.
func (c *Collector) Export(_ context.Context, r *service.ExportTraceServiceRequest) (*service.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceSpans {
		process := texts(of.Resource.GetAttributes())
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.mu.spans = append(c.mu.spans, read(s, process))
			}
		}
	}
	close(c.mu.came)
	c.mu.came = make(chan struct{})
	return &service.ExportTraceServiceResponse{}, nil
}

func read(s *tracev1.Span, process map[string]string) *Span {
	out := &Span{
		Part: process["service.name"], Process: process, Name: s.Name, Kind: strings.ToLower(strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_")),
		Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Above: hex.EncodeToString(s.ParentSpanId),
		About: texts(s.Attributes), Failed: s.Status.GetCode() == tracev1.Status_STATUS_CODE_ERROR,
	}
	for _, e := range s.Events {
		out.Events = append(out.Events, e.Name)
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, hex.EncodeToString(l.SpanId))
	}
	return out
}

func texts(all []*commonv1.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range all {
		switch v := kv.Value.Value.(type) {
		case *commonv1.AnyValue_StringValue:
			out[kv.Key] = v.StringValue
		case *commonv1.AnyValue_IntValue:
			out[kv.Key] = strconv.FormatInt(v.IntValue, 10)
		default:
			out[kv.Key] = kv.Value.String()
		}
	}
	return out
}

// Spans is what has come, with the name if one is given.
func (c *Collector) Spans(name string) []*Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.mu.spans), func(s *Span) bool { return name != "" && s.Name != name })
}

// The returns the one span of the name, which must have come.
func (c *Collector) The(name string) *Span {
	c.tb.Helper()
	found := c.Spans(name)
	if len(found) != 1 {
		c.tb.Fatalf("spans %q: got %d, want 1; there are %s", name, len(found), c.Names())
	}
	return found[0]
}

// Within returns the one span of the name that is in another one, however deep.
func (c *Collector) Within(above *Span, name string) *Span {
	c.tb.Helper()
	all := map[string]*Span{}
	for _, s := range c.Spans("") {
		all[s.ID] = s
	}
	var found []*Span
	for _, s := range c.Spans(name) {
		for up := all[s.Above]; up != nil; up = all[up.Above] {
			if up.ID == above.ID {
				found = append(found, s)
				break
			}
		}
	}
	if len(found) != 1 {
		c.tb.Fatalf("spans %q in %q: got %d, want 1; there are %s", name, above.Name, len(found), c.Names())
	}
	return found[0]
}

// Names are those of the spans that have come.
func (c *Collector) Names() string {
	var names []string
	for _, s := range c.Spans("") {
		names = append(names, s.Part+": "+s.Name)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "; ")
}

// Await waits until spans have come that pass a test.
func (c *Collector) Await(what string, test func() bool) {
	c.tb.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		c.mu.Lock()
		came := c.mu.came
		c.mu.Unlock()
		if test() {
			return
		}
		select {
		case <-came:
		case <-limit.C:
			c.tb.Fatalf("no %s; there are %s", what, c.Names())
		}
	}
}
