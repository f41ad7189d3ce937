package webhook

import (
	"context"
	"fmt"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/match"
	"github.com/kemudi/kemudi/internal/api/admissionregistration"
	"github.com/kemudi/kemudi/internal/resource"
)

// plugin is one of the two plugins.
type plugin struct {
	o     *admission.Options
	hooks *source
	m     *metrics
}

// New returns the plugins that ask mutating and validating webhooks.
func New(o *admission.Options) (mutating, validating admission.Plugin) {
	ms := newMetrics(o.Registry)
	m := &plugin{o, mutatingSource(o), ms.of("admit")}
	v := &plugin{o, validatingSource(o), ms.of("validating")}
	mutating = admission.Plugin{Name: "MutatingAdmissionWebhook", Mutate: m.mutate}
	validating = admission.Plugin{Name: "ValidatingAdmissionWebhook", Mutate: v.settle, Validate: v.validate}
	return mutating, validating
}

// asked are the webhooks that there are for a write; none if it is none that any is asked about.
func (p *plugin) asked(ctx context.Context, a *admission.Attributes) ([]*webhook, error) {
	if match.Exempt(a) {
		return nil, nil
	}
	return p.hooks.present(ctx)
}

// own are the resources by which writes are kept out or changed.
func own(def *resource.Def) bool { return def.Group == admissionregistration.Group }

// settle has who writes a configuration wait until the writes after it are held against it (A2). It is
// asked about deletes too.
func (p *plugin) settle(ctx context.Context, a *admission.Attributes) error {
	if own(a.Def) && !a.DryRun && a.Sub == "" && p.o.Fresh != nil {
		a.Finally(func() {
			// A server that ends, or a client that has gone, waits for nothing: the write is done.
			_ = p.o.Fresh(ctx)
		})
	}
	return nil
}

// called is the webhook's part of a message of what went wrong when it was called.
func (w *webhook) called(format string, args ...any) error {
	return &callError{w.Name, fmt.Errorf(format, args...), 0}
}

// callError says that a webhook could not be asked, or did not answer as it must.
type callError struct {
	webhook string
	reason  error
	code    int32 // of the answer; 0: 503
}

// Error is upstream's text.
func (e *callError) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.webhook, e.reason)
}

// Unwrap is why.
func (e *callError) Unwrap() error { return e.reason }
