package webhook

import (
	"context"
	"fmt"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/match"
	"github.com/kemudi/kemudi/internal/admission/static"
	"github.com/kemudi/kemudi/internal/api/admissionregistration"
	"github.com/kemudi/kemudi/internal/hook"
	"github.com/kemudi/kemudi/internal/resource"
)

// plugin is one of the two plugins.
type plugin struct {
	o     *admission.Options
	hooks *source
	m     *metrics
}

// Hooks makes the two plugins.
type Hooks struct {
	o *admission.Options
	m *shared
}

// New returns what the plugins have in common.
func New(o *admission.Options) Hooks { return Hooks{o, newMetrics(o.Registry)} }

// Mutating is the plugin that asks mutating webhooks.
func (h Hooks) Mutating() (admission.Plugin, error) {
	p := &plugin{h.o, mutatingSource(h.o), h.m.of("admit")}
	return p.configured(admission.Plugin{Name: "MutatingAdmissionWebhook", Mutate: p.mutate})
}

// Validating is the plugin that asks validating webhooks.
func (h Hooks) Validating() (admission.Plugin, error) {
	p := &plugin{h.o, validatingSource(h.o), h.m.of("validating")}
	return p.configured(admission.Plugin{Name: "ValidatingAdmissionWebhook", Mutate: p.settle, Validate: p.validate})
}

// configured takes in what the plugin is told.
func (p *plugin) configured(as admission.Plugin) (admission.Plugin, error) {
	var told struct {
		APIVersion         string `json:"apiVersion"`
		Kind               string `json:"kind"`
		KubeConfigFile     string `json:"kubeConfigFile"`
		StaticManifestsDir string `json:"staticManifestsDir"`
	}
	err := p.o.Config.Read(as.Name, &told, "apiserver.config.k8s.io/v1 WebhookAdmissionConfiguration", "apiserver.config.k8s.io/v1alpha1 WebhookAdmission")
	if err != nil {
		return as, err
	}
	if p.hooks.shown, err = hook.ReadIdentities(told.KubeConfigFile); err != nil {
		return as, admission.Misconfigured(as.Name, fmt.Errorf("kubeConfigFile: %w", err))
	}
	if p.hooks.files, err = static.Webhooks(p.o, as.Name, p.hooks.def, told.StaticManifestsDir); err != nil {
		return as, admission.Misconfigured(as.Name, err)
	}
	as.Run = p.hooks.files.Runner()
	return as, nil
}

// asked are the webhooks that there are for a write; none if it is none that any is asked about.
func (p *plugin) asked(ctx context.Context, a *admission.Attributes) ([]*webhook, error) {
	if match.Exempt(a) {
		if own(a.Def) {
			return p.hooks.fixed(), nil
		}
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
