package webhook

import (
	"context"
	"errors"
	"time"

	"github.com/google/cel-go/common/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/match"
	"github.com/kemudi/kemudi/internal/cel/request"
)

// meant returns the version at which a webhook is to be asked about a write; nil: it is not
// to be asked. An error refuses the write.
func (p *plugin) meant(ctx context.Context, w *webhook, t *match.Target) (*match.Version, error) {
	if w.broken != nil {
		return nil, apierrors.NewInternalError(w.broken)
	}
	v, err := w.criteria.Matches(ctx, t)
	if v == nil || err != nil {
		return nil, asAnswer(err)
	}
	if len(w.MatchConditions) == 0 {
		return v, nil
	}
	f, err := t.At(ctx, v)
	if err != nil {
		return nil, asAnswer(err)
	}
	a := t.Attributes()
	began := time.Now()
	ok, err := w.fulfilled(ctx, p.m, a, &request.Input{
		Object: f.Object, OldObject: f.Old, Request: t.Request(v), Authorizer: p.o.Authorizer, User: a.User,
	})
	p.m.evaluated(w.Name, a.Operation, time.Since(began))
	switch {
	case err != nil:
		return nil, apierrors.NewForbidden(a.Def.GroupResource(), t.Name(), err)
	case !ok:
		p.m.excluded(w.Name, a.Operation)
		return nil, nil
	}
	return v, nil
}

// fulfilled evaluates the match conditions. One that is false decides, whatever the others
// fail by; else a failure refuses the write or, if failures of the webhook are ignored,
// leaves it out.
func (w *webhook) fulfilled(ctx context.Context, m *metrics, a *admission.Attributes, in *request.Input) (bool, error) {
	budget := request.MatchBudget
	var failed []error
	for _, c := range w.conditions() {
		if c.err != nil {
			failed = append(failed, c.err)
			m.misevaluated(w.Name, a.Operation)
			continue
		}
		value, err := c.expression.Eval(ctx, in, &budget)
		switch {
		case errors.Is(err, request.ErrBudget):
			failed = []error{err}
		case err != nil:
			failed = append(failed, err)
			m.misevaluated(w.Name, a.Operation)
		case value == types.False:
			return false, nil
		}
		if errors.Is(err, request.ErrBudget) {
			break
		}
	}
	if len(failed) == 0 {
		return true, nil
	}
	if w.ignores() {
		return false, nil
	}
	return false, errors.Join(failed...)
}

// asAnswer is an error as the API tells it.
func asAnswer(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}
