package modes

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/auth"
	"github.com/kemudi/kemudi/internal/auth/abac"
	"github.com/kemudi/kemudi/internal/auth/webhook"
	"github.com/kemudi/kemudi/internal/reach/egress"
)

// Built are the authorizers that go by the cluster's objects, and what all need. All fields
// but ID are required.
type Built struct {
	Node, RBAC authorizer.UnconditionalAuthorizer
	Dial       egress.Dial // makes connections to webhooks; nil: directly
	Registry   prometheus.Registerer
	Logger     *slog.Logger
	ID         string // of this server, in metrics
}

// Authorizer asks those that are configured. It may be used concurrently.
type Authorizer struct {
	o       Options
	b       Built
	metrics *metrics
	own     auth.Chain // of parts of this process (M2)
	now     atomic.Pointer[chain]

	mu struct {
		sync.Mutex
		read *config // last, from the file, and in force
		data []byte  // last, whatever came of it
	}
	lasting  []string // M4
	policies abac.Policies
}

var (
	_ authorizer.Authorizer   = (*Authorizer)(nil)
	_ authorizer.RuleResolver = (*Authorizer)(nil)
)

// chain is authorizers in the order in which they are asked, and those of them that are webhooks.
type chain struct {
	auth.Chain
	webhooks []*webhook.Authorizer
}

// New makes the authorizers. The options were checked.
func New(o Options, b Built) (*Authorizer, error) {
	if o.Webhook == (WebhookOptions{}) {
		o.Webhook = Defaults().Webhook
	}
	c, err := o.load()
	if err != nil {
		return nil, err
	}
	a := &Authorizer{o: o, b: b, metrics: newMetrics(b.Registry), own: auth.Authorizers(b.Node, b.RBAC), lasting: c.lasting(), policies: c.policies}
	made, err := a.chain(c)
	if err != nil {
		return nil, err
	}
	a.now.Store(made)
	a.mu.read, a.mu.data = c, c.data
	if c.data != nil {
		a.metrics.force(b.ID, c.data)
	}
	return a, nil
}

// chain makes the authorizers of a configuration.
func (a *Authorizer) chain(c *config) (*chain, error) {
	made := &chain{}
	for i := range c.authorizers {
		one := &c.authorizers[i]
		l := &link{
			allowed: a.metrics.decisions.WithLabelValues(string(one.Type), one.Name, "allowed"),
			denied:  a.metrics.decisions.WithLabelValues(string(one.Type), one.Name, "denied"),
		}
		switch one.Type {
		case Node:
			l.UnconditionalAuthorizer = a.b.Node
		case RBAC:
			l.UnconditionalAuthorizer = a.b.RBAC
		case ABAC:
			l.UnconditionalAuthorizer = a.policies
		case AlwaysAllow:
			l.UnconditionalAuthorizer = always{decision: authorizer.DecisionAllow}
		case AlwaysDeny:
			l.UnconditionalAuthorizer = always{decision: authorizer.DecisionNoOpinion, reason: "Everything is forbidden."}
		case Webhook:
			w, err := a.open(one)
			if err != nil {
				made.close()
				return nil, fmt.Errorf("authorizers[%d].webhook: %w", i, err)
			}
			made.webhooks = append(made.webhooks, w)
			l.UnconditionalAuthorizer = w
		}
		made.Chain = append(made.Chain, l)
	}
	return made, nil
}

func (c *chain) close() {
	for _, w := range c.webhooks {
		w.Close()
	}
}

// Authorize decides about one request.
func (a *Authorizer) Authorize(ctx context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.of(ctx, attrs.GetUser()).Authorize(ctx, attrs)
}

// of is who decides about a user's request (M2).
func (a *Authorizer) of(ctx context.Context, u user.Info) auth.Chain {
	if auth.IsWithin(ctx, u) {
		return a.own
	}
	return a.now.Load().Chain
}

// ConditionsAwareAuthorize decides without conditions: no authorizer here has any.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context, attrs authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attrs))
}

// EvaluateConditions denies: no authorizer here has made any.
func (a *Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor lists what the user may do in a namespace.
func (a *Authorizer) RulesFor(ctx context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return a.of(ctx, u).RulesFor(ctx, u, namespace)
}

// File is the one that is read again when it changes; empty: there is none.
func (a *Authorizer) File() string { return a.o.ConfigFile }

// Close closes the connections to webhooks that wait for questions.
func (a *Authorizer) Close() { a.now.Load().close() }

// Reload reads the configuration again, if its file has changed (M3).
func (a *Authorizer) Reload() {
	a.mu.Lock()
	defer a.mu.Unlock()
	data, err := os.ReadFile(a.o.ConfigFile)
	if err == nil && bytes.Equal(data, a.mu.data) {
		return
	}
	if err == nil {
		a.mu.data = data
		err = a.replaceLocked(data)
	}
	if err != nil {
		a.metrics.read("failure", a.b.ID)
		a.b.Logger.Error("--authorization-config cannot be; what was read before stays in force", "file", a.o.ConfigFile, "err", err)
		return
	}
	a.metrics.read("success", a.b.ID)
	a.metrics.force(a.b.ID, data)
	a.b.Logger.Info("--authorization-config was read again", "file", a.o.ConfigFile, "authorizers", strings.Join(a.mu.read.types(), ","))
}

func (a *Authorizer) replaceLocked(data []byte) error {
	list, err := parse(data)
	if err != nil {
		return err
	}
	c := &config{authorizers: list, policies: a.policies, data: data}
	for _, t := range c.lasting() {
		if !slices.Contains(a.lasting, t) {
			return fmt.Errorf("authorizer type %s is not allowed if it was not enabled at initial server startup", t)
		}
	}
	for _, t := range a.lasting {
		if !slices.Contains(c.lasting(), t) {
			return fmt.Errorf("authorizer type %s was there when the server started, and must stay until the next start", t)
		}
	}
	made, err := a.chain(c)
	if err != nil {
		return err
	}
	a.now.Swap(made).close()
	a.mu.read = c
	return nil
}

// link is an authorizer whose decisions are counted.
type link struct {
	authorizer.UnconditionalAuthorizer
	allowed, denied prometheus.Counter
}

var _ authorizer.RuleResolver = (*link)(nil)

// Authorize decides about one request.
func (l *link) Authorize(ctx context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := l.UnconditionalAuthorizer.Authorize(ctx, attrs)
	switch decision {
	case authorizer.DecisionAllow:
		l.allowed.Inc()
	case authorizer.DecisionDeny:
		l.denied.Inc()
	}
	return decision, reason, err
}

// RulesFor lists what the user may do in a namespace, as far as the authorizer can tell.
func (l *link) RulesFor(ctx context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	r, ok := l.UnconditionalAuthorizer.(authorizer.RuleResolver)
	if !ok {
		return nil, nil, true, nil
	}
	return r.RulesFor(ctx, u, namespace)
}

// always has one opinion of everything.
type always struct {
	decision authorizer.Decision
	reason   string
}

var _ authorizer.RuleResolver = always{}

// Authorize decides about one request.
func (a always) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.decision, a.reason, nil
}

// RulesFor is everything or nothing.
func (a always) RulesFor(context.Context, user.Info, string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if a.decision != authorizer.DecisionAllow {
		return nil, nil, false, nil
	}
	all := []string{"*"}
	return []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: all, APIGroups: all, Resources: all}},
		[]authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: all, NonResourceURLs: all}}, false, nil
}
