package container

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/obs/tracing"
)

// Measured is the same runtime, whose calls are counted in reg by upstream's names.
func (c *CRI) Measured(reg prometheus.Registerer) *CRI {
	m := &measured{
		ClientConnInterface: c.conn,
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_total", Help: "Cumulative number of runtime operations by operation type.",
		}, []string{"operation_type"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_errors_total", Help: "Cumulative number of runtime operation errors by operation type.",
		}, []string{"operation_type"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_runtime_operations_duration_seconds", Help: "Duration in seconds of runtime operations. Broken down by operation type.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, []string{"operation_type"}),
		sandboxes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_run_podsandbox_duration_seconds", Help: "How long the runtime took to make the sandbox of a pod, by the handler of its RuntimeClass.", Buckets: prometheus.DefBuckets,
		}, []string{"runtime_handler"}),
		sandboxErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_run_podsandbox_errors_total", Help: "Sandboxes that the runtime could not make, by the handler of the RuntimeClass.",
		}, []string{"runtime_handler"}),
	}
	reg.MustRegister(m.calls, m.errors, m.took, m.sandboxes, m.sandboxErrors)
	return newCRI(m)
}

// measured is a connection whose calls are counted, but for streams, which last.
type measured struct {
	grpc.ClientConnInterface
	calls, errors, sandboxErrors *prometheus.CounterVec
	took, sandboxes              *prometheus.HistogramVec
}

// Invoke makes a call.
func (m *measured) Invoke(ctx context.Context, method string, args, reply any, o ...grpc.CallOption) error {
	began, name := time.Now(), operation(method)
	err := m.ClientConnInterface.Invoke(ctx, method, args, reply, o...)
	m.calls.WithLabelValues(name).Inc()
	m.took.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if err != nil {
		m.errors.WithLabelValues(name).Inc()
	}
	if r, ok := args.(*runtimeapi.RunPodSandboxRequest); ok {
		m.sandboxes.WithLabelValues(r.RuntimeHandler).Observe(time.Since(began).Seconds())
		if err != nil {
			m.sandboxErrors.WithLabelValues(r.RuntimeHandler).Inc()
		}
	}
	return err
}

// Traced is the same runtime, whose calls have spans by p; nil: it is the same.
func (c *CRI) Traced(p *tracing.Provider) *CRI {
	h := p.Calls()
	if h == nil {
		return c
	}
	return newCRI(&traced{c.conn, h})
}

// traced is a connection whose calls are in traces, but for streams, which last.
type traced struct {
	grpc.ClientConnInterface
	spans stats.Handler
}

// Invoke makes a call, which the runtime is told the span of. A runtime in the process has no connection of gRPC to
// notice its calls.
func (t *traced) Invoke(ctx context.Context, method string, args, reply any, o ...grpc.CallOption) error {
	ctx = t.spans.TagRPC(ctx, &stats.RPCTagInfo{FullMethodName: method})
	err := t.ClientConnInterface.Invoke(ctx, method, args, reply, o...)
	t.spans.HandleRPC(ctx, &stats.End{Client: true, Error: err})
	return err
}

// operation is what metrics call a method: "run_podsandbox" of "/runtime.v1.RuntimeService/RunPodSandbox".
func operation(method string) string {
	method = method[strings.LastIndexByte(method, '/')+1:]
	if method == "UpdateContainerResources" {
		return "update_container"
	}
	var b strings.Builder
	for i, r := range strings.ReplaceAll(method, "PodSandbox", "Podsandbox") {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
