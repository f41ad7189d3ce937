package call

import (
	"context"
	"strings"

	"github.com/kemudi/kemudi/internal/obs/tracing"
)

// Trace is the span of what a call does, under the name that its request has in the audit. The zero value is
// that of a call that is not traced.
type Trace struct {
	*tracing.Span
	AuditID string
}

// Step begins the span of a part of what the call does. Its object, or collection, is told of.
func (c *Call) Step(ctx context.Context, name string) (context.Context, *tracing.Span) {
	if c.Trace.Span == nil {
		return ctx, nil
	}
	d := c.Resource.Def
	return c.Trace.Start(ctx, name,
		tracing.Text("audit-id", c.Trace.AuditID), tracing.Text("key", strings.TrimPrefix(c.Key(), "/registry")),
		tracing.Text("type", d.GroupResource().String()), tracing.Text("group", d.Group), tracing.Text("resource", d.Plural))
}
