package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/match"
	"github.com/kemudi/kemudi/internal/api/admissionregistration"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/wire"
)

// question is what webhooks are asked about a write at a version. It is shared by those that are asked side
// by side.
type question struct {
	version *match.Version
	request *admissionv1.AdmissionRequest // without a UID
	form    *match.Form
}

// ask makes the question about the write at a version.
func ask(ctx context.Context, t *match.Target, v *match.Version) (*question, error) {
	f, err := t.At(ctx, v)
	if err != nil {
		return nil, asAnswer(err)
	}
	q := &question{version: v, request: t.Request(v), form: f}
	if q.request.Object.Raw, err = encode(f.Object); err == nil {
		q.request.OldObject.Raw, err = encode(f.Old)
	}
	if err != nil {
		return nil, asAnswer(err)
	}
	return q, nil
}

func encode(obj runtime.Object) ([]byte, error) {
	if obj == nil {
		return nil, nil
	}
	return wire.AppendJSON(nil, obj)
}

// call asks a webhook. What it has to tell besides is in the answer, allowed or not.
func (p *plugin) call(ctx context.Context, w *webhook, q *question) (*admissionv1.AdmissionResponse, error) {
	if ptr.Deref(q.request.DryRun, false) {
		switch {
		case w.SideEffects == nil:
			return nil, &callError{w.Name, errors.New("Webhook SideEffects is nil"), 400} //nolint:staticcheck // upstream's text
		case *w.SideEffects != admissionregistrationv1.SideEffectClassNone && *w.SideEffects != admissionregistrationv1.SideEffectClassNoneOnDryRun:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", w.Name))
		}
	}
	at := slices.IndexFunc(w.AdmissionReviewVersions, func(v string) bool { return slices.Contains(admissionregistration.Reviews, v) })
	if at < 0 {
		return nil, &callError{w.Name, errors.New("could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)"), 400}
	}
	if p.o.Webhooks == nil {
		return nil, w.called("failed to call webhook: this server calls no webhooks")
	}
	request := *q.request
	request.UID = types.UID(uuid.NewString())
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.GroupName + "/" + w.AdmissionReviewVersions[at], Kind: "AdmissionReview"}, Request: &request,
	}
	name := "Call validating webhook"
	if p.m.kind == "admit" {
		name = "Call mutating webhook"
	}
	ctx, span := tracing.Within(ctx, name, tracing.Text("configuration", w.configuration), tracing.Text("webhook", w.Name),
		tracing.Text("resource", request.Resource.String()), tracing.Text("subresource", request.SubResource),
		tracing.Text("operation", string(request.Operation)), tracing.Text("UID", string(request.UID)))
	defer span.End()
	if w.TimeoutSeconds != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*w.TimeoutSeconds)*time.Second) // A3
		defer cancel()
	}
	var out admissionv1.AdmissionReview
	if err := p.o.Webhooks.Post(ctx, w.at, &review, &out); err != nil {
		e := &callError{w.Name, fmt.Errorf("failed to call webhook: %w", err), 0}
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			e.code = status.Status().Code
		}
		return nil, e
	}
	if err := p.verify(&review, &out); err != nil {
		return nil, w.called("received invalid webhook response: %w", err)
	}
	return out.Response, nil
}

// verify refuses an answer that is none to the review. Those of v1beta1 were never held to be
// exact.
func (p *plugin) verify(review, out *admissionv1.AdmissionReview) error {
	r := out.Response
	if r == nil {
		return errors.New("webhook response was absent")
	}
	mutating := p.m.kind == "admit"
	if review.APIVersion != "admission.k8s.io/v1" {
		if len(r.Patch) > 0 {
			r.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
		}
		if !mutating {
			r.Patch, r.PatchType = nil, nil
		}
		return nil
	}
	switch want := review.GroupVersionKind(); {
	case r.UID != review.Request.UID:
		return fmt.Errorf("expected response.uid=%q, got %q", review.Request.UID, r.UID)
	case out.GroupVersionKind() != want:
		return fmt.Errorf("expected webhook response of %v, got %v", want.String(), out.GroupVersionKind().String())
	case !mutating && len(r.Patch) > 0:
		return errors.New("validating webhook may not return response.patch")
	case !mutating && r.PatchType != nil:
		return errors.New("validating webhook may not return response.patchType")
	case len(r.Patch) > 0 && r.PatchType == nil:
		return errors.New("webhook returned response.patch but not response.patchType")
	case len(r.Patch) == 0 && r.PatchType != nil:
		return errors.New("webhook returned response.patchType but not response.patch")
	case r.PatchType != nil && *r.PatchType == "":
		return errors.New(`webhook returned invalid response.patchType of ""`)
	}
	return nil
}

// tell hands on what an answer says besides.
func (w *webhook) tell(a *admission.Attributes, r *admissionv1.AdmissionResponse) {
	for key, value := range r.AuditAnnotations {
		a.Audit.Annotate(w.Name+"/"+key, value)
	}
	for _, text := range r.Warnings {
		a.Warn(text)
	}
}

// denial is the refusal of a webhook, in its words.
func (w *webhook) denial(said *metav1.Status) *apierrors.StatusError {
	if said == nil {
		said = &metav1.Status{}
	}
	said.Code = max(said.Code, 400)
	if said.Status == "" || said.Status == metav1.StatusSuccess {
		said.Status = metav1.StatusFailure
	}
	why := " without explanation"
	switch {
	case said.Message != "":
		why = ": " + said.Message
	case said.Reason != "":
		why = ": " + string(said.Reason)
	}
	said.Message = fmt.Sprintf("admission webhook %q denied the request%s", w.Name, why)
	return &apierrors.StatusError{ErrStatus: *said}
}
