package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/task"
)

// Options of a provider. Config and Part are required.
type Options struct {
	Config *Config
	// Part is what makes the spans, as collectors show it: apiserver, kubelet.
	Part string
	// Attributes are what collectors know the process by beside.
	Attributes []attribute.KeyValue
	// Dial opens connections to the collector. Nil: the network does.
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Logger *slog.Logger
}

// Provider makes the spans of one part of the process, and sends them. Nil: there are none (T1).
type Provider struct {
	spans    *sdktrace.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
}

// flushWithin is how long a provider that ends takes to send what it has.
const flushWithin = 3 * time.Second

// scope names what has made a span, in its trace.
const scope = "github.com/kemudi/kemudi/internal/obs/tracing"

// propagation in headers, as W3C has it.
var propagators = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// InstanceID is the attribute by which collectors tell processes of a part from each other.
func InstanceID(id string) attribute.KeyValue { return semconv.ServiceInstanceID(id) }

// HostName is the attribute that says on which machine a process runs.
func HostName(name string) attribute.KeyValue { return semconv.HostName(name) }

// New returns a provider, which must be run. It connects to the collector when there is something to send.
func New(ctx context.Context, o Options) (*Provider, error) {
	opts := []otlptracegrpc.Option{otlptracegrpc.WithInsecure()}
	if o.Config.Endpoint != nil {
		opts = append(opts, otlptracegrpc.WithEndpoint(*o.Config.Endpoint))
	}
	if o.Dial != nil {
		opts = append(opts, otlptracegrpc.WithDialOption(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return o.Dial(ctx, "tcp", address)
		})))
	}
	to, err := otlptracegrpc.New(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	of, err := resource.New(ctx, resource.WithAttributes(append([]attribute.KeyValue{semconv.ServiceName(o.Part)}, o.Attributes...)...))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	sampler := sdktrace.NeverSample() // who began a trace says whether it is sent
	if rate := o.Config.SamplingRatePerMillion; rate != nil && *rate > 0 {
		sampler = sdktrace.TraceIDRatioBased(float64(*rate) / maxPerTrip)
	}
	p := &Provider{exporter: newExporter(ctx, to, o.Logger)}
	p.spans = sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sampler)), sdktrace.WithBatcher(p.exporter), sdktrace.WithResource(of),
	)
	p.tracer = p.spans.Tracer(scope)
	return p, nil
}

// Begin returns a provider that runs in g; nil without a configuration.
func Begin(g *task.Group, o Options) (*Provider, error) {
	if o.Config == nil {
		return nil, nil
	}
	p, err := New(g.Context(), o)
	if err != nil {
		return nil, err
	}
	g.Go("tracing of "+o.Part, p.Run)
	return p, nil
}

// Run waits until ctx ends, and then sends what there is, within a bound (T4).
func (p *Provider) Run(ctx context.Context) error {
	<-ctx.Done()
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	defer cancel()
	if p.spans.Shutdown(flush) != nil { // what goes wrong is told by the exporter
		p.exporter.giveUp()
		<-p.exporter.ended
	}
	return nil
}

// exporter sends spans, says when that does not work, and can be told to give up.
type exporter struct {
	sdktrace.SpanExporter
	log    *slog.Logger
	row    obs.Row // of what could not be sent; the library sends one batch at a time
	late   context.Context
	giveUp context.CancelFunc
	ended  chan struct{} // closed when it has been shut down
}

func newExporter(ctx context.Context, to sdktrace.SpanExporter, log *slog.Logger) *exporter {
	e := &exporter{SpanExporter: to, log: log, ended: make(chan struct{})}
	e.late, e.giveUp = context.WithCancel(context.WithoutCancel(ctx))
	return e
}

// ExportSpans sends spans. What cannot be sent is dropped (T4).
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.late, cancel)()
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.log.Log(ctx, e.row.Failed(), "traces cannot be sent, and are dropped", "spans", len(spans), "err", err)
		return nil // or the library would tell of it by itself
	}
	e.row.Over()
	return nil
}

// Shutdown ends the connection to the collector.
func (e *exporter) Shutdown(ctx context.Context) error {
	defer close(e.ended)
	defer e.giveUp()
	return e.SpanExporter.Shutdown(ctx)
}
