package webhook

import (
	"context"
	"fmt"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/match"
	"github.com/kemudi/kemudi/internal/audit"
)

// asking is one webhook that is asked beside others.
type asking struct {
	w    *webhook
	q    *question
	r    *admissionv1.AdmissionResponse
	open bool
	err  error
}

// validate asks all webhooks at once, and waits for them all. Of several refusals the first, in the
// order of the webhooks, is told.
func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	all, err := p.toAsk(ctx, a)
	if len(all) == 0 || err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errTimeout()
	}
	began := time.Now()
	if len(all) == 1 {
		p.askOne(ctx, a, &all[0])
	} else {
		var wg sync.WaitGroup
		for i := range all {
			wg.Go(func() { p.askOne(ctx, a, &all[i]) })
		}
		wg.Wait()
	}
	a.Audit.Spent(audit.ValidatingWebhooks, time.Since(began))
	for i := range all {
		k := &all[i]
		if k.r != nil {
			k.w.tell(a, k.r)
		}
		if k.open {
			a.Audit.Annotate(fmt.Sprintf("failed-open.validating.webhook.admission.k8s.io/round_0_index_%d", i), k.w.Name)
		}
	}
	for i := range all {
		if all[i].err != nil {
			return all[i].err
		}
	}
	return nil
}

// toAsk are the webhooks that are to be asked, and what. Those that ask at one version share
// the question.
func (p *plugin) toAsk(ctx context.Context, a *admission.Attributes) ([]asking, error) {
	hooks, err := p.asked(ctx, a)
	if len(hooks) == 0 || err != nil {
		return nil, asAnswer(err)
	}
	t := match.New(p.o, a)
	questions := map[*match.Version]*question{}
	var all []asking
	for _, w := range hooks {
		v, err := p.meant(ctx, w, t)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		if questions[v] == nil {
			if questions[v], err = ask(ctx, t, v); err != nil {
				return nil, err
			}
		}
		all = append(all, asking{w: w, q: questions[v]})
	}
	return all, nil
}

// askOne asks one webhook. A panic is an error: nobody would catch it in a goroutine of a
// request.
func (p *plugin) askOne(ctx context.Context, a *admission.Attributes, k *asking) {
	defer func() {
		if r := recover(); r != nil {
			k.err = apierrors.NewInternalError(fmt.Errorf("ValidatingAdmissionWebhook/%v has panicked: %v", k.w.Name, r))
		}
	}()
	began := time.Now()
	var err error
	if k.r, err = p.call(ctx, k.w, k.q); err == nil && !k.r.Allowed {
		err = denied{k.w.denial(k.r.Result)}
	}
	k.open, k.err = p.conclude(ctx, k.w, a, result{err, time.Since(began)})
}
