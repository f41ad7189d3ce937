package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"

	"github.com/kemudi/kemudi/internal/hook"
)

// Options configure an authorizer. Name, Remote, Version, Metrics and Logger are required.
type Options struct {
	Name    string
	Remote  *hook.Remote        // who is asked; closed by the authorizer
	Version string              // of SubjectAccessReviews: v1 or v1beta1
	Allowed time.Duration       // how long what is allowed is remembered; 0: not at all
	Refused time.Duration       // how long the rest is
	OnError authorizer.Decision // what a webhook that fails means: to deny, or no opinion

	// Match says what is asked; nil: everything.
	Match   *authorizationcel.CELMatcher
	Metrics *Metrics
	Logger  *slog.Logger
}

// Bounds of what is remembered: of an entry by the digest of a question some 300 bytes and the reason,
// altogether 10 MiB. Questions that the asker has made very long are asked each time, as upstream
// does; so are those whose answer gives a very long reason.
const (
	maxAnswers  = 8192
	maxQuestion = 10000
	maxReason   = 1 << 10
)

// Authorizer asks one webhook. It may be used concurrently.
type Authorizer struct {
	o       Options
	answers *cache.LRUExpireCache
	said    atomic.Int64 // when the log was told of a failure, in nanoseconds since 1970
}

// saidEvery is how often the log is told of failures.
const saidEvery = time.Minute

var (
	_ authorizer.UnconditionalAuthorizer = (*Authorizer)(nil)
	_ authorizer.RuleResolver            = (*Authorizer)(nil)
)

// New returns an authorizer that has asked nothing yet.
func New(o Options) *Authorizer {
	if m := o.Match; m != nil {
		m.AuthorizerType, m.AuthorizerName, m.Metrics = "Webhook", o.Name, o.Metrics
	}
	return &Authorizer{o: o, answers: cache.NewLRUExpireCache(maxAnswers)}
}

// Close closes the connections that wait for questions. Those that are asked go on.
func (w *Authorizer) Close() { w.o.Remote.Close() }

// Authorize decides about one request.
func (w *Authorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	spec := question(a)
	if w.o.Match != nil {
		meant, err := w.o.Match.Eval(ctx, &authorizationv1.SubjectAccessReview{Spec: spec})
		if err != nil {
			return w.o.OnError, "", err
		}
		if !meant {
			return authorizer.DecisionNoOpinion, "", nil
		}
	}
	s, err := w.ask(ctx, a, &spec)
	switch {
	case err != nil:
		return w.o.OnError, "", err
	case s.Denied && s.Allowed:
		return authorizer.DecisionDeny, s.Reason, errors.New("webhook subject access review returned both allow and deny response")
	case s.Denied:
		return authorizer.DecisionDeny, s.Reason, nil
	case s.Allowed:
		return authorizer.DecisionAllow, s.Reason, nil
	}
	return authorizer.DecisionNoOpinion, s.Reason, nil
}

// ask returns the webhook's answer, or an earlier one that still holds.
func (w *Authorizer) ask(ctx context.Context, a authorizer.Attributes, spec *authorizationv1.SubjectAccessReviewSpec) (status, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return status{}, fmt.Errorf("write the question: %w", err)
	}
	key := sha256.Sum256(text)
	if known, ok := w.answers.Get(key); ok {
		return known.(status), nil
	}
	var got answer
	result := ""
	err = w.o.Remote.Post(ctx, document(w.o.Version, spec), &got, func(t hook.Trip) {
		if t.Err == nil {
			t.Err = got.check(w.o.Version)
		}
		result = resultOf(ctx, t.Err)
		w.o.Metrics.evaluations.WithLabelValues(w.o.Name, result).Inc()
		w.o.Metrics.duration.WithLabelValues(w.o.Name, result).Observe(t.Took.Seconds())
	})
	if err == nil {
		err = got.check(w.o.Version)
	}
	if err != nil {
		if ctx.Err() == nil {
			w.say(ctx, err)
			if w.o.OnError == authorizer.DecisionNoOpinion {
				w.o.Metrics.failOpen.WithLabelValues(w.o.Name, result).Inc()
			}
		}
		return status{}, err
	}
	keep := w.o.Refused
	if got.Status.Allowed {
		keep = w.o.Allowed
	}
	if keep > 0 && askedLength(a) < maxQuestion && len(got.Status.Reason) <= maxReason {
		w.answers.Add(key, got.Status, keep)
	}
	return got.Status, nil
}

// say tells the log of a failure, and not of each: all requests may fail while a webhook is away.
func (w *Authorizer) say(ctx context.Context, err error) {
	now, last := time.Now().UnixNano(), w.said.Load()
	if now-last >= int64(saidEvery) && w.said.CompareAndSwap(last, now) {
		w.o.Logger.ErrorContext(ctx, "an authorization webhook failed", "authorizer", w.o.Name, "err", err)
	}
}

// resultOf is what came of a call, as metrics have it.
func resultOf(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return "success"
	case ctx.Err() != nil:
		return "canceled"
	case hook.IsTimeout(err):
		return "timeout"
	}
	return "error"
}

// askedLength is how long those parts of a question are that its asker chooses.
func askedLength(a authorizer.Attributes) int {
	return len(a.GetNamespace()) + len(a.GetVerb()) + len(a.GetAPIGroup()) + len(a.GetAPIVersion()) + len(a.GetResource()) +
		len(a.GetSubresource()) + len(a.GetName()) + len(a.GetPath())
}

// RulesFor says that a webhook cannot tell.
func (w *Authorizer) RulesFor(context.Context, user.Info, string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return nil, nil, true, errors.New("webhook authorizer does not support user rule resolution")
}
