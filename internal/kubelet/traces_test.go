package kubelet

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/obs/tracing/collector"
	"github.com/kemudi/kemudi/internal/task"
)

// What an agent does for pods is in traces, and so is what it is asked.
func TestWorkForPodsIsTraced(t *testing.T) {
	c := collector.New(t)
	g := task.NewGroup(context.WithoutCancel(t.Context()))
	p, err := tracing.Begin(g, tracing.Options{ // it sends by a network, which no bubble can have
		Config: &tracing.Config{Endpoint: &c.Address, SamplingRatePerMillion: ptr.To[int32](1_000_000)}, Part: "kubelet", Logger: slog.New(slog.DiscardHandler),
		Attributes: []tracing.Attribute{tracing.HostName("n1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) { o.Tracing = p }}
		n.run()
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: web, image: web}]}`)
		if got := n.pod("web"); got.Status.PodIP == "" {
			t.Fatalf("got %+v, want it running", got.Status)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/containerLogs/default/web/none", http.NoBody)
		r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		n.agent.Handler().ServeHTTP(httptest.NewRecorder(), r)
		deletePod(t, n.api, "web", 30)
		if n.pod("web") != nil {
			t.Fatal("the pod is left")
		}
	})
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	started := 0
	for _, s := range c.Spans("syncPod") {
		if s.About["k8s.pod.name"] != "web" || s.About["k8s.namespace.name"] != "default" || s.About["k8s.pod"] != "default/web" || s.About["k8s.pod.uid"] == "" || s.Process["host.name"] != "n1" {
			t.Errorf("syncPod: got %+v", s)
		}
		if s.About["k8s.pod.update_type"] == "create" {
			started++
		}
	}
	if started != 1 || len(c.Spans("syncTerminatingPod")) == 0 || len(c.Spans("syncTerminatedPod")) == 0 {
		t.Errorf("got %d starts, and %s, want one start, and how the pod ended", started, c.Names())
	}
	asked := c.The("/containerLogs/{namespace}/{pod}/{container}")
	if asked.Trace != "4bf92f3577b34da6a3ce929d0e0e4736" || asked.Kind != "server" || asked.About["http.response.status_code"] == "200" || asked.About["server.address"] != "kubelet" {
		t.Errorf("what was asked: got %+v, want it in the client's trace, and refused", asked)
	}
}
