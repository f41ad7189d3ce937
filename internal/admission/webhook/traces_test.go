package webhook_test

import (
	"context"
	"log/slog"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/obs/tracing/collector"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/task"
)

// Webhooks are told of the trace that they are in, and the time that they take is seen there.
func TestWebhooksAreInTraces(t *testing.T) {
	c := collector.New(t)
	g := task.NewGroup(context.WithoutCancel(t.Context()))
	p, err := tracing.Begin(g, tracing.Options{
		Config: &tracing.Config{Endpoint: &c.Address, SamplingRatePerMillion: ptr.To[int32](0)}, Part: "apiserver", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	end := func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	w := newWorldOf(t, plane.Options{Tracing: p})
	allow := func(*admissionv1.AdmissionReview) any { return &admissionv1.AdmissionResponse{Allowed: true} }
	w.on("/change", allow)
	w.on("/check", allow)
	w.must(201, "POST", mutatingPath, `{"metadata":{"name":"change"},"webhooks":[`+w.hook("/change", `"name":"change.example.com"`)+`]}`)
	w.must(201, "POST", validatingPath, `{"metadata":{"name":"check"},"webhooks":[`+w.hook("/check", `"name":"check.example.com"`)+`]}`)
	w.told() // of what was asked so far
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	w.must(201, "POST", mapsPath, `{"metadata":{"name":"a"}}`, "Content-Type: application/json", "Traceparent: 00-"+trace+"-00f067aa0ba902b7-01")
	told := w.told()
	end()
	post := c.The("POST /api/v1/namespaces/{:namespace}/configmaps")
	if post.Trace != trace {
		t.Fatalf("got %+v, want it in the client's trace", post)
	}
	for i, name := range []string{"mutating", "validating"} {
		call := c.Within(post, "Call "+name+" webhook")
		want := map[string]string{"webhook": []string{"change", "check"}[i] + ".example.com", "configuration": []string{"change", "check"}[i], "operation": "CREATE"}
		for key, value := range want {
			if call.About[key] != value {
				t.Errorf("%s of %s: got %q, want %q", key, call.Name, call.About[key], value)
			}
		}
		sent := c.Within(call, "HTTP POST")
		if i >= len(told) || told[i] != "00-"+trace+"-"+sent.ID+"-01" {
			t.Errorf("what webhooks were told: got %q, want of the %s one that it is in %s", told, name, sent.ID)
		}
	}
}
