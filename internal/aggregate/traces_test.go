package aggregate_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/obs/tracing/collector"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/task"
)

// Who serves an aggregated API is told of the trace that a request is in.
func TestRequestsThatAreHandedOnAreInTraces(t *testing.T) {
	t.Parallel()
	c, g := collector.New(t), task.NewGroup(context.WithoutCancel(t.Context()))
	p, err := tracing.Begin(g, tracing.Options{
		Config: &tracing.Config{Endpoint: &c.Address, SamplingRatePerMillion: ptr.To[int32](0)}, Part: "apiserver", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, func(o *plane.Options) { o.Tracing = p })
	told := make(chan string, 1)
	b.sample(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/openapi/") { // which the control plane asks for by itself
			http.NotFound(w, r)
			return
		}
		told <- r.Header.Get("Traceparent")
	})
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	b.must(200, "GET "+flundersPath, "", "Traceparent: 00-"+trace+"-00f067aa0ba902b7-01")
	got := <-told
	// The request has ended for the client; its spans end with it, and are sent some seconds later.
	c.Await("span of the request", func() bool {
		for _, s := range c.Spans("") {
			if s.About["url.path"] == flundersPath {
				return true
			}
		}
		return false
	})
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	sent := c.The("HTTP GET")
	if got != "00-"+trace+"-"+sent.ID+"-01" || sent.Trace != trace {
		t.Errorf("the other server was told %q, want that it is in %+v", got, sent)
	}
}
