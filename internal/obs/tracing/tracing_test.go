package tracing

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/obs/tracing/collector"
	"github.com/kemudi/kemudi/internal/task"
)

// run runs a provider, and returns what ends it.
func run(t *testing.T, o Options) (*Provider, func()) {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("tracing", p.Run)
	end := func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	return p, end
}

func TestConfigurationFilesAreRead(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\n"
	for text, want := range map[string]string{
		head: "",
		head + "endpoint: collector:4317\nsamplingRatePerMillion: 1000000\n":                              "",
		head + "endpoint: dns:///collector:4317\n":                                                        "",
		head + "endpoint: unix:///run/collector.sock\n":                                                   "",
		"apiVersion: apiserver.config.k8s.io/v1alpha1\nkind: TracingConfiguration\n":                      "",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: 5\n": "",
		head + "samplingRatePerMillion: -1\n":                                                             "samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
		head + "samplingRatePerMillion: 1000001\n":                                                        "samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or equal to one million",
		head + "samplingRatePerMillion: 99999999999\n":                                                    "samplingRatePerMillion",
		head + "samplingRatePerMillion: much\n":                                                           "samplingRatePerMillion",
		head + "endpoint: https://collector:4317\n":                                                       `endpoint: Invalid value: "https://collector:4317": unsupported scheme: https`,
		head + "endpoint: \"coll%zzector\"\n":                                                             `endpoint: Invalid value: "coll%zzector"`,
		head + "samplingRate: 5\n":                                                                        `unknown field "samplingRate"`,
		"apiVersion: apiserver.config.k8s.io/v2\nkind: TracingConfiguration\n":                            `want kind: TracingConfiguration and apiVersion: apiserver.config.k8s.io/v1, or`,
		"apiVersion: apiserver.config.k8s.io/v1\nkind: EgressSelectorConfiguration\n":                     `got "EgressSelectorConfiguration"`,
		"":  "want kind",
		"{": "yaml",
	} {
		path := filepath.Join(t.TempDir(), "tracing.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		switch _, err := Read(path); {
		case want == "" && err != nil:
			t.Errorf("%q: got %v, want no error", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path)):
			t.Errorf("%q: got %v, want %s, and the file's name", text, err, want)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a file that is not there: got no error")
	}
	err := (&Config{SamplingRatePerMillion: ptr.To[int32](-2)}).Check(field.NewPath("tracing"))
	if err == nil || !strings.Contains(err.Error(), "tracing.samplingRatePerMillion") {
		t.Errorf("below a path: got %v, want it named", err)
	}
}

func TestSpansReachTheCollector(t *testing.T) {
	t.Parallel()
	c := collector.New(t)
	p, end := run(t, Options{Config: &Config{Endpoint: &c.Address, SamplingRatePerMillion: ptr.To[int32](maxPerTrip)}, Part: "kubelet", Attributes: []Attribute{HostName("node-1"), InstanceID("one")}})
	ctx, outer := p.Start(t.Context(), "outer", Text("a", "b"))
	_, inner := Within(ctx, "inner")
	inner.Event("half", Number("n", 5))
	inner.Fail(context.Canceled)
	inner.End()
	outer.End()
	end() // sends what there is
	above, below := c.The("outer"), c.The("inner")
	if above.About["a"] != "b" || above.Part != "kubelet" || above.Process["host.name"] != "node-1" || above.Process["service.instance.id"] != "one" || above.Failed {
		t.Errorf("outer: got %+v", above)
	}
	if below.Above != above.ID || below.Trace != above.Trace || below.Events[0] != "half" || !below.Failed {
		t.Errorf("inner: got %+v, want it within %+v", below, above)
	}
}

// Whom a server believes may have his requests traced, although nothing is by itself (T3).
func TestBelievedClientsSayWhatIsTraced(t *testing.T) {
	t.Parallel()
	c := collector.New(t)
	p, end := run(t, Options{Config: &Config{Endpoint: &c.Address}, Part: "apiserver"})
	const above = "00f067aa0ba902b7"
	for name, believed := range map[string]bool{"believed": true, "not believed": false} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://server:6443/some/path?x=1", http.NoBody)
		r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-"+above+"-01")
		_, s := p.Serve(r, Request{Name: name, Believed: believed})
		s.Answered(500, 20)
		s.End()
	}
	_, s := p.Serve(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), Request{Name: "without", Believed: true})
	s.End()
	end()
	got := c.The("believed")
	if got.Above != above || got.Trace != "4bf92f3577b34da6a3ce929d0e0e4736" || got.Kind != "server" || !got.Failed {
		t.Errorf("got %+v, want it in the client's trace", got)
	}
	for key, want := range map[string]string{
		"http.request.method": "GET", "url.path": "/some/path", "http.target": "/some/path?x=1", "server.address": "server", "server.port": "6443", "url.scheme": "https",
		"http.response.status_code": "500", "http.response.body.size": "20", "client.address": "192.0.2.1", "network.peer.address": "192.0.2.1", "network.protocol.version": "1.1",
	} {
		if got.About[key] != want {
			t.Errorf("%s: got %q, want %q", key, got.About[key], want)
		}
	}
	if names := c.Names(); names != "apiserver: believed" {
		t.Errorf("got %s, want nothing else", names)
	}
}

// A client that is not believed has no part in the trace that its request begins, but is linked to.
func TestTracesOfOthersAreLinkedTo(t *testing.T) {
	t.Parallel()
	c := collector.New(t)
	p, end := run(t, Options{Config: &Config{Endpoint: &c.Address, SamplingRatePerMillion: ptr.To[int32](maxPerTrip)}, Part: "apiserver"})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00") // it says not to trace it
	_, s := p.Serve(r, Request{Name: "linked"})
	s.End()
	end()
	if got := c.The("linked"); got.Above != "" || got.Trace == "4bf92f3577b34da6a3ce929d0e0e4736" || len(got.Links) != 1 || got.Links[0] != "00f067aa0ba902b7" {
		t.Errorf("got %+v, want a trace of its own, and a link", got)
	}
}

func TestClientsTellServersOfTheirTrace(t *testing.T) {
	t.Parallel()
	c := collector.New(t)
	p, end := run(t, Options{Config: &Config{Endpoint: &c.Address, SamplingRatePerMillion: ptr.To[int32](maxPerTrip)}, Part: "apiserver"})
	var told string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told = r.Header.Get("Traceparent") }))
	defer srv.Close()
	ctx, s := p.Start(t.Context(), "outer")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: p.Client(http.DefaultTransport)}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	s.End()
	end()
	call := c.The("HTTP POST")
	if want := "00-" + call.Trace + "-" + call.ID + "-01"; told != want || call.Above != c.The("outer").ID || call.Kind != "client" {
		t.Errorf("the server was told %q, want %q; span %+v", told, want, call)
	}
}

// Without a configuration there is no provider, and what is asked of it costs nothing (T1).
func TestNothingCostsNothing(t *testing.T) {
	var p *Provider
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		_, s := p.Start(ctx, "none")
		s.Event("e")
		_, below := s.Start(ctx, "below")
		below.End()
		s.Fail(context.Canceled)
		s.Answered(200, 1)
		s.End()
	}); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
	if by := p.Client(http.DefaultTransport); by != http.DefaultTransport {
		t.Errorf("client: got %v, want it as it was", by)
	}
	if p.Calls() != nil {
		t.Error("calls: got a handler, want none")
	}
}

// A collector that takes connections and never answers does not hold up the end for long (T4).
func TestEndsWithoutACollector(t *testing.T) {
	t.Parallel()
	deaf, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	gone := "127.0.0.1:1"
	for name, at := range map[string]string{"deaf": deaf.Addr().String(), "gone": gone} {
		t.Run(name, func(t *testing.T) {
			p, end := run(t, Options{Config: &Config{Endpoint: &at, SamplingRatePerMillion: ptr.To[int32](maxPerTrip)}, Part: "apiserver"})
			for range 5000 { // more than are kept
				_, s := p.Start(t.Context(), "lost")
				s.End()
			}
			began := time.Now()
			end()
			if took := time.Since(began); took > 2*flushWithin {
				t.Errorf("the end took %s, want at most about %s", took, flushWithin)
			}
		})
	}
}
