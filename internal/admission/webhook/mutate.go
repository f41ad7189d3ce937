package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/match"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/patch"
	"github.com/kemudi/kemudi/internal/wire"
)

// passKey finds the passes of a write.
type passKey struct{}

// passes is what is known of the first pass of a write in the second one.
type passes struct {
	output  []byte          // the object as the webhooks have left it; kept if one of them may be asked again
	invoked map[string]bool // webhooks that were asked, and are to be again if something changes
	again   map[string]bool // webhooks that are asked again
}

func passesOf(a *admission.Attributes) *passes {
	if s, ok := a.Kept(passKey{}).(*passes); ok {
		return s
	}
	s := &passes{invoked: map[string]bool{}, again: map[string]bool{}}
	a.Keep(passKey{}, s)
	return s
}

// changed has those that were asked before asked again.
func (s *passes) changed() {
	maps.Copy(s.again, s.invoked)
	clear(s.invoked)
}

// mutate asks one webhook after the other, each about what those before have made of the
// object.
func (p *plugin) mutate(ctx context.Context, a *admission.Attributes) error {
	hooks, err := p.asked(ctx, a)
	if len(hooks) == 0 || err != nil {
		return asAnswer(err)
	}
	s := passesOf(a)
	if a.Pass > 0 && s.output != nil {
		if now, err := encode(a.Object); err != nil || string(now) != string(s.output) { // by plugins of the server's own
			s.changed()
		}
	}
	t := match.New(p.o, a)
	for i, w := range hooks {
		if a.Pass > 0 && !s.again[w.key] {
			continue
		}
		v, err := p.meant(ctx, w, t)
		if err != nil {
			return err
		}
		if v == nil {
			continue
		}
		if err := p.mutateBy(ctx, w, t, turn{v, i, s}); err != nil {
			return err
		}
	}
	if len(s.invoked) > 0 {
		s.output, _ = encode(a.Object) // of what cannot be encoded nothing is known: it is asked about again
	}
	return nil
}

// turn is a webhook's turn in a write.
type turn struct {
	version *match.Version
	index   int // among all webhooks
	passes  *passes
}

// mutateBy asks one webhook, and takes over what it makes of the object.
func (p *plugin) mutateBy(ctx context.Context, w *webhook, t *match.Target, at turn) error {
	a := t.Attributes()
	key := fmt.Sprintf("round_%d_index_%d", a.Pass, at.index)
	q, err := ask(ctx, t, at.version)
	if err != nil {
		return err
	}
	began, changed := time.Now(), false
	r, err := p.call(ctx, w, q)
	a.Audit.Spent(audit.MutatingWebhooks, time.Since(began))
	if err == nil {
		w.tell(a, r)
		if !r.Allowed {
			err = denied{w.denial(r.Result)}
		} else if changed, err = p.apply(t, w, q, r); err == nil && len(r.Patch) > 0 && a.Audit.TellsRequest() {
			a.Audit.Annotate("patch.webhook.admission.k8s.io/"+key, note{Configuration: w.configuration, Webhook: w.Name, Patch: r.Patch, PatchType: "JSONPatch"}.text())
		}
	}
	a.Audit.Annotate("mutation.webhook.admission.k8s.io/"+key, note{Configuration: w.configuration, Webhook: w.Name, Mutated: &changed}.text())
	if changed {
		at.passes.changed()
		a.Again()
	}
	if w.ReinvocationPolicy != nil && *w.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy {
		at.passes.invoked[w.key] = true
	}
	open, err := p.conclude(ctx, w, a, result{err, time.Since(began)})
	if open {
		a.Audit.Annotate("failed-open.mutation.webhook.admission.k8s.io/"+key, w.Name)
	}
	return err
}

// apply applies the patch of an answer (A4). changed says that the object is another one then.
func (p *plugin) apply(t *match.Target, w *webhook, q *question, r *admissionv1.AdmissionResponse) (changed bool, _ error) {
	if len(r.Patch) == 0 {
		return false, nil
	}
	var operations []json.RawMessage
	if err := json.Unmarshal(r.Patch, &operations); err != nil {
		return false, w.called("received undecodable patch in webhook response: %w", err)
	}
	switch {
	case len(operations) == 0:
		return false, nil
	case q.form.Object == nil:
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", w.Name))
	case *r.PatchType != admissionv1.PatchTypeJSONPatch:
		return false, w.called("unsupported patch type %q", *r.PatchType)
	}
	doc, err := patch.JSON(q.request.Object.Raw, r.Patch)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	obj := t.New(q.version)
	if err := wire.DecodeJSON(doc, obj); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if got, want := obj.GetObjectKind().GroupVersionKind(), q.version.Kind; got != want {
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q made a %v of a %v", w.Name, got, want))
	}
	if same(obj, q.form.Object) {
		return false, nil
	}
	return true, asAnswer(t.Replace(q.version, obj))
}

// same reports that two objects of a type say the same.
func same(a, b runtime.Object) bool {
	type document interface{ View() map[string]any }
	if x, ok := a.(document); ok {
		if y, ok := b.(document); ok {
			return equality.Semantic.DeepEqual(x.View(), y.View())
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}

// note is what the audit log is told of a webhook's turn.
type note struct {
	Configuration string          `json:"configuration"`
	Webhook       string          `json:"webhook"`
	Mutated       *bool           `json:"mutated,omitempty"`
	Patch         json.RawMessage `json:"patch,omitempty"`
	PatchType     string          `json:"patchType,omitempty"`
}

func (n note) text() string {
	data, err := json.Marshal(n)
	if err != nil { // the patch was decoded before
		return err.Error()
	}
	return string(data)
}

// denied is a webhook's refusal.
type denied struct{ *apierrors.StatusError }

// Unwrap is the refusal as clients are told it.
func (d denied) Unwrap() error { return d.StatusError }

// result is what came of asking a webhook.
type result struct {
	err  error
	took time.Duration
}

// conclude counts a call, and returns what it means for the write: nil, it goes on. open says that
// it does although the webhook could not be asked.
func (p *plugin) conclude(ctx context.Context, w *webhook, a *admission.Attributes, r result) (open bool, _ error) {
	var refusal denied
	var failure *callError
	switch {
	case r.err == nil:
		p.m.called(w.Name, a.Operation, outcome{code: 200, took: r.took})
		return false, nil
	case errors.As(r.err, &refusal):
		p.m.called(w.Name, a.Operation, outcome{code: refusal.ErrStatus.Code, took: r.took, rejected: "no_error"})
		return false, refusal.StatusError
	case !errors.As(r.err, &failure):
		p.m.called(w.Name, a.Operation, outcome{took: r.took, rejected: "apiserver_internal_error"})
		return false, r.err
	}
	o := outcome{code: failure.code, took: r.took}
	if o.code == 0 {
		o.code = 503
	}
	gone := errors.Is(failure, context.Canceled)
	if !w.ignores() {
		o.rejected = "calling_webhook_error"
		o.uncounted = gone
		p.m.called(w.Name, a.Operation, o)
		return false, apierrors.NewInternalError(failure)
	}
	p.m.called(w.Name, a.Operation, o)
	if ctx.Err() != nil { // the client's time is over, not the webhook's
		return false, errTimeout()
	}
	if !gone {
		p.m.failedOpen(w.Name)
	}
	return !gone, nil
}

func errTimeout() error {
	return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
}
