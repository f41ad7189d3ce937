package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/match"
	"github.com/kemudi/kemudi/internal/cel/request"
)

// budget is what the expressions of one policy may cost for one write and one param.
const budget request.Budget = celconfig.RuntimeCELCostBudget

// head is what compiled policies of both kinds begin with.
type head struct {
	name       string
	ignore     bool // its failures: writes go on as if it were not there
	criteria   *match.Criteria
	wrong      error // of the criteria
	params     *admissionregistrationv1.ParamKind
	conditions []condition
	declared   *request.Declared
}

// expression is compiled, or it is known why it cannot be.
type expression struct {
	text string
	is   *request.Expression // nil: see err
	err  error
}

type condition struct {
	name string
	expression
}

// spec is what the heads of policies are made of.
type spec struct {
	name       string
	failure    *admissionregistrationv1.FailurePolicyType
	params     *admissionregistrationv1.ParamKind
	match      *admissionregistrationv1.MatchResources
	conditions []admissionregistrationv1.MatchCondition
	variables  []admissionregistrationv1.Variable
}

// newHead compiles a head, and returns what the rest of the policy is compiled in.
func newHead(s spec) (head, *request.Scope) {
	h := head{name: s.name, ignore: ptr.Deref(s.failure, admissionregistrationv1.Fail) == admissionregistrationv1.Ignore, params: s.params}
	if s.match == nil {
		h.wrong = errors.New("policy contained no match constraints, a required field")
	} else {
		h.criteria, h.wrong = match.Compile(criteria(s.match, false))
	}
	in := &request.Scope{Mode: request.Stored, Params: s.params != nil}
	for _, v := range s.variables {
		_ = in.Declare(v.Name, v.Expression) // who uses it fails
	}
	h.declared = in.Declared()
	for _, c := range s.conditions {
		h.conditions = append(h.conditions, condition{c.Name, compiled(in, strings.TrimSpace(c.Expression), true, cel.BoolType)})
	}
	return h, in
}

// criteria are those of match resources; unruled: without rules all writes are meant.
func criteria(m *admissionregistrationv1.MatchResources, unruled bool) match.Spec {
	return match.Spec{
		Namespace: m.NamespaceSelector, Object: m.ObjectSelector, Rules: m.ResourceRules, Exclude: m.ExcludeResourceRules,
		Policy: m.MatchPolicy, Unruled: unruled,
	}
}

func compiled(in *request.Scope, text string, authorizer bool, want ...*cel.Type) expression {
	is, err := in.Compile(text, authorizer, want...)
	if err != nil {
		return expression{text, nil, notCompiled{fmt.Errorf("compilation error: %w", err)}}
	}
	return expression{text, is, nil}
}

// eval is the expression's value. What has gone wrong with the budget, and so with all that
// follows, is a [request.ErrBudget].
func (e *expression) eval(ctx context.Context, in *request.Input, b *request.Budget) (ref.Val, error) {
	if e.err != nil {
		return nil, e.err
	}
	return e.is.Eval(ctx, in, b)
}

// binding puts a policy in force.
type binding struct {
	name, policy string
	criteria     *match.Criteria // nil: all that the policy is for
	wrong        error           // of the criteria
	params       *admissionregistrationv1.ParamRef
	actions      []admissionregistrationv1.ValidationAction
}

func newBinding(name, policy string, params *admissionregistrationv1.ParamRef, m *admissionregistrationv1.MatchResources) *binding {
	b := &binding{name: name, policy: policy, params: params}
	if m != nil {
		b.criteria, b.wrong = match.Compile(criteria(m, true))
	}
	return b
}

// matches reports whether the binding is for the write.
func (b *binding) matches(ctx context.Context, t *match.Target) (bool, error) {
	if b.criteria == nil || b.wrong != nil {
		return b.wrong == nil, b.wrong
	}
	v, err := b.criteria.Matches(ctx, t)
	return v != nil, err
}

// call is one policy that is asked about one write with one param.
type call struct {
	t     *match.Target
	v     *match.Version
	form  *match.Form
	param runtime.Object // nil: there is none
	o     *admission.Options
	m     *metrics
}

// input is what expressions see; with is false for those that may not ask what users are
// allowed.
func (c *call) input(ctx context.Context, object runtime.Object, with bool) (*request.Input, error) {
	ns, err := c.t.Namespace(ctx)
	if err != nil {
		return nil, err
	}
	in := &request.Input{
		Object: object, OldObject: c.form.Old, Request: c.t.Request(c.v), Namespace: ns, Params: c.param, User: c.t.Attributes().User,
	}
	if with {
		in.Authorizer = c.o.Authorizer
	}
	return in, nil
}

// wants reports whether the policy's conditions are met. An error, in upstream's words, is that this
// is not known: what follows is for the failure policy to say.
func (h *head) wants(ctx context.Context, c *call) (bool, error) {
	if len(h.conditions) == 0 {
		return true, nil
	}
	began, label := time.Now(), c.m.label(h.name, c.t.Attributes().Operation)
	ok, err := h.met(ctx, c, func() { c.m.conditions.Failed(label) })
	if !ok {
		c.m.conditions.Evaluated(label, time.Since(began))
	}
	return ok, err
}

// met evaluates the conditions; failed is called for each that cannot be.
func (h *head) met(ctx context.Context, c *call, failed func()) (bool, error) {
	in, err := c.input(ctx, c.form.Object, true)
	if err != nil {
		return false, err
	}
	in.Namespace = nil
	left := request.MatchBudget
	h.declared.Bind(ctx, in, &left)
	var errs []error
	for i := range h.conditions {
		value, err := h.conditions[i].eval(ctx, in, &left)
		switch {
		case errors.Is(err, request.ErrBudget):
			return false, err
		case err != nil:
			errs = append(errs, err)
			failed()
		case value == celtypes.False:
			return false, nil
		}
	}
	if len(errs) > 0 {
		return false, utilerrors.NewAggregate(errs)
	}
	return true, nil
}
