package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Span is something that takes time. Nil: nobody is told of it, and its methods do nothing (T1).
type Span struct{ trace.Span }

// Attribute is something that is told of a span or an event.
type Attribute = attribute.KeyValue

// Text and Number are what is told of spans and events.
func Text(key, value string) attribute.KeyValue       { return attribute.String(key, value) }
func Number(key string, value int) attribute.KeyValue { return attribute.Int(key, value) }

// Start begins a span in the trace that ctx has, or one of its own. Nil begins none.
func (p *Provider) Start(ctx context.Context, name string, about ...attribute.KeyValue) (context.Context, *Span) {
	if p == nil {
		return ctx, nil
	}
	ctx, s := p.tracer.Start(ctx, name, trace.WithAttributes(about...))
	return ctx, recorded(s)
}

// recorded is nil for a span that is not sent: its context goes on saying so to those below.
func recorded(s trace.Span) *Span {
	if !s.IsRecording() {
		return nil
	}
	return &Span{s}
}

// Within begins a span within that of ctx, by the same provider; without one, it begins none. It is for what
// costs more than to look for it.
func Within(ctx context.Context, name string, about ...attribute.KeyValue) (context.Context, *Span) {
	s := trace.SpanFromContext(ctx)
	if !s.IsRecording() {
		return ctx, nil
	}
	return (&Span{s}).Start(ctx, name, about...)
}

// Carry is ctx, in the trace and the span that another context has: for what goes on when that ends.
func Carry(ctx, from context.Context) context.Context {
	if s := trace.SpanFromContext(from); s.SpanContext().IsValid() {
		return trace.ContextWithSpan(ctx, s)
	}
	return ctx
}

// Start begins a span within s.
func (s *Span) Start(ctx context.Context, name string, about ...attribute.KeyValue) (context.Context, *Span) {
	if s == nil {
		return ctx, nil
	}
	ctx, below := s.TracerProvider().Tracer(scope).Start(trace.ContextWithSpan(ctx, s.Span), name, trace.WithAttributes(about...))
	return ctx, recorded(below)
}

// Event notes that something has happened.
func (s *Span) Event(name string, about ...attribute.KeyValue) {
	if s != nil {
		s.AddEvent(name, trace.WithAttributes(about...))
	}
}

// Fail notes that what takes the time has failed; nil: it has not.
func (s *Span) Fail(err error) {
	if s != nil && err != nil {
		s.RecordError(err)
		s.SetStatus(codes.Error, err.Error())
	}
}

// End says that it is over.
func (s *Span) End() {
	if s != nil {
		s.Span.End()
	}
}
