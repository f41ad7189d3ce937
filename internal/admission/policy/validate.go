package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/match"
	"github.com/kemudi/kemudi/internal/admission/static"
	"github.com/kemudi/kemudi/internal/api/admissionregistration"
	"github.com/kemudi/kemudi/internal/cel/request"
	"github.com/kemudi/kemudi/internal/resource"
)

// validating is a compiled ValidatingAdmissionPolicy.
type validating struct {
	head
	validations []validation
	annotations []annotation
}

// validation is a rule: what does not fulfil it is refused.
type validation struct {
	expression
	message string      // given; empty: none
	say     *expression // makes the message; nil: nothing does
	reason  metav1.StatusReason
}

// annotation is something to be noted in the audit log.
type annotation struct {
	key string
	expression
}

func compileValidating(obj resource.Object) *validating {
	p := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	s := &p.Spec
	h, in := newHead(spec{p.Name, s.FailurePolicy, s.ParamKind, s.MatchConstraints, s.MatchConditions, s.Variables})
	out := &validating{head: h}
	for _, v := range s.Validations {
		one := validation{
			expression: compiled(in, v.Expression, true, cel.BoolType), message: strings.TrimSpace(v.Message),
			reason: ptr.Deref(v.Reason, metav1.StatusReasonInvalid),
		}
		if v.MessageExpression != "" {
			say := compiled(in, v.MessageExpression, false, cel.StringType)
			one.say = &say
		}
		out.validations = append(out.validations, one)
	}
	for _, a := range s.AuditAnnotations {
		out.annotations = append(out.annotations, annotation{a.Key, compiled(in, strings.TrimSpace(a.ValueExpression), true, cel.StringType, cel.NullType)})
	}
	return out
}

// NewValidating refuses writes that ValidatingAdmissionPolicies do not allow, and policies whose params
// their authors may not read.
func NewValidating(o *admission.Options) (admission.Plugin, error) {
	as := admission.Plugin{Name: "ValidatingAdmissionPolicy"}
	s, err := newSet[*validating](o, as.Name, static.Pair{
		Policies: admissionregistration.ValidatingAdmissionPolicies.Def, Bindings: admissionregistration.ValidatingAdmissionPolicyBindings.Def,
	})
	p := &validator{o: o, m: validatingMetrics(o.Registry), set: s}
	s.compile = timed(p.m.all, compileValidating)
	s.bind = func(obj resource.Object) *binding {
		b := obj.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
		out := newBinding(b.Name, b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)
		out.actions = b.Spec.ValidationActions
		return out
	}
	as.Validate, as.Run = p.validate, s.files.Runner()
	return as, err
}

type validator struct {
	o   *admission.Options
	m   *metrics
	set *set[*validating]
}

func (p *validator) validate(ctx context.Context, a *admission.Attributes) error {
	if match.Exempt(a) {
		if err := mayRefer(ctx, p.o, a); err != nil {
			return err
		}
	}
	policies := about(p.set, a)
	if len(policies) == 0 {
		return nil
	}
	r := &review{o: p.o, m: p.m, t: match.New(p.o, a)}
	for i := range policies {
		if err := r.ask(ctx, policies[i].policy(), policies[i].bindings); err != nil {
			return err
		}
	}
	return r.result()
}

// review is what policies have to say of one write.
type review struct {
	o *admission.Options
	m *metrics
	t *match.Target

	denied   *denial // the first
	failures []failure
	notes    map[string][]string // of the policy that is being asked, by key
}

// denial is why a write is refused.
type denial struct {
	message string
	reason  metav1.StatusReason
}

// failure is a validation that failed, in the form that the audit log has of it.
type failure struct {
	Message           string                                     `json:"message"`
	Policy            string                                     `json:"policy"`
	Binding           string                                     `json:"binding"`
	ExpressionIndex   int                                        `json:"expressionIndex"`
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions"`
}

// deny refuses the write for a policy, and for one of its bindings (nil: for none).
func (r *review) deny(p *validating, b *binding, message string, reason metav1.StatusReason) {
	if r.denied != nil {
		return
	}
	if b == nil {
		message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", p.name, message)
	} else {
		message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", p.name, b.name, message)
	}
	r.denied = &denial{message, reason}
}

// misconfigured does what the policy wants where it cannot be asked.
func (r *review) misconfigured(p *validating, b *binding, err error) {
	switch {
	case p.ignore:
	case b == nil:
		r.deny(p, nil, "failed to configure policy: "+err.Error(), metav1.StatusReasonInvalid)
	default:
		r.deny(p, b, "failed to configure binding: "+err.Error(), metav1.StatusReasonInvalid)
	}
}

// ask asks one policy, if it is for the write. An error ends the review.
func (r *review) ask(ctx context.Context, p *validating, bindings []*binding) error {
	if p.wrong != nil {
		r.misconfigured(p, nil, p.wrong)
		return nil
	}
	v, err := p.criteria.Matches(ctx, r.t)
	if err == nil && v == nil {
		return nil
	}
	var kind *paramKind
	if err == nil {
		kind, err = kindOf(r.o, p.params)
	}
	if err != nil {
		r.misconfigured(p, nil, err)
		return nil
	}
	r.notes = nil
	for _, b := range bindings {
		if err := r.askFor(ctx, p, b, &call{t: r.t, v: v, o: r.o, m: r.m}, kind); err != nil {
			return err
		}
	}
	for key, values := range r.notes {
		r.t.Attributes().Audit.Annotate(p.name+"/"+key, strings.Join(values, ", "))
	}
	return nil
}

// askFor asks a policy as one of its bindings has it.
func (r *review) askFor(ctx context.Context, p *validating, b *binding, c *call, kind *paramKind) error {
	switch ok, err := b.matches(ctx, r.t); {
	case err != nil:
		r.misconfigured(p, b, err)
		return nil
	case !ok:
		return nil
	}
	all, err := params(ctx, r.o, kind, b.params, r.t)
	if err == nil && len(all) > 0 {
		c.form, err = r.t.At(ctx, c.v)
	}
	if err != nil {
		r.misconfigured(p, b, err)
		return nil
	}
	for _, param := range all {
		c.param = param
		verdicts, err := p.verdicts(ctx, c)
		if err != nil {
			return err
		}
		r.enforce(p, b, verdicts)
		if err := r.note(ctx, p, b, c, len(verdicts) > 0 && verdicts[0].skipped); err != nil {
			return err
		}
	}
	return nil
}

// verdict is what a validation says of the write.
type verdict struct {
	refuses bool
	message string
	reason  metav1.StatusReason
	err     error         // why it is not known whether it should
	took    time.Duration // its expression
	skipped bool          // the policy as a whole has nothing to say, or cannot
}

// failed is the verdict of a policy that could not be asked.
func (p *validating) failed(err error) verdict {
	return verdict{refuses: !p.ignore, message: err.Error(), err: err}
}

// verdicts are those of the validations, in their order. None: the policy's conditions
// are not met. An error ends the review.
func (p *validating) verdicts(ctx context.Context, c *call) ([]verdict, error) {
	whole := func(err error) []verdict {
		v := p.failed(err)
		v.skipped = true
		return []verdict{v}
	}
	switch ok, err := p.wants(ctx, c); {
	case err != nil:
		return whole(err), nil
	case !ok:
		return []verdict{{skipped: true}}, nil
	}
	in, err := c.input(ctx, c.form.Object, true)
	if err != nil {
		return nil, err
	}
	left := budget
	p.declared.Bind(ctx, in, &left)
	all := make([]verdict, len(p.validations))
	began := time.Now()
	last := began
	for i := range p.validations {
		v := &p.validations[i]
		value, err := v.eval(ctx, in, &left)
		switch {
		case errors.Is(err, request.ErrBudget):
			return whole(err), nil
		case err != nil:
			all[i] = p.failed(err)
		case value != celtypes.True:
			all[i] = verdict{refuses: true, reason: v.reason}
		}
		now := time.Now()
		all[i].took, last = now.Sub(last), now
	}
	c.m.all.Evaluated(last.Sub(began))
	for i := range all {
		if v := &all[i]; v.refuses && v.message == "" {
			if v.message, err = p.says(ctx, c, &p.validations[i], &left); err != nil {
				took := v.took
				*v = p.failed(fmt.Errorf("failed messageExpression: %w", err))
				v.took = took
			}
		}
	}
	return all, nil
}

// says is the message of a validation that was not fulfilled. What its expression makes must be one line
// that is not too long; otherwise the message is the given one, or names the expression.
func (p *validating) says(ctx context.Context, c *call, v *validation, left *request.Budget) (string, error) {
	if v.say != nil {
		in, err := c.input(ctx, c.form.Object, false)
		if err != nil {
			return "", err
		}
		p.declared.Bind(ctx, in, left)
		value, err := v.say.eval(ctx, in, left)
		if errors.Is(err, request.ErrBudget) {
			return "", err
		}
		if err == nil {
			text, _ := value.Value().(string)
			if text = strings.TrimSpace(text); text != "" && len(text) <= celconfig.MaxEvaluatedMessageExpressionSizeBytes && !strings.Contains(text, "\n") {
				return text, nil
			}
		}
	}
	if v.message != "" {
		return v.message, nil
	}
	return "failed expression: " + strings.TrimSpace(v.text), nil
}

// enforce does about the verdicts what the binding wants.
func (r *review) enforce(p *validating, b *binding, verdicts []verdict) {
	for i, v := range verdicts {
		if !v.refuses {
			if v.err != nil {
				r.m.checked(v.took, p.name, b.name, errorType(v.err), "allow")
			}
			continue
		}
		for _, action := range b.actions {
			switch action {
			case admissionregistrationv1.Deny:
				r.deny(p, b, v.message, v.reason)
				r.m.checked(v.took, p.name, b.name, errorType(v.err), "deny")
			case admissionregistrationv1.Warn:
				r.t.Attributes().Warn(fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", p.name, b.name, v.message))
				r.m.checked(v.took, p.name, b.name, errorType(v.err), "warn")
			case admissionregistrationv1.Audit:
				r.failures = append(r.failures, failure{v.message, p.name, b.name, i, b.actions})
				r.m.checked(v.took, p.name, b.name, errorType(v.err), "audit")
			}
		}
	}
}

// maxNote is how long the value of an audit annotation may be, in bytes.
const maxNote = 10 << 10

// note collects what a policy has to say to the audit log. What cannot be said is a
// failure of the policy.
func (r *review) note(ctx context.Context, p *validating, b *binding, c *call, skipped bool) error {
	if len(p.annotations) == 0 || skipped {
		return nil
	}
	in, err := c.input(ctx, c.form.Object, true)
	if err != nil {
		return err
	}
	left := budget
	p.declared.Bind(ctx, in, &left)
	for i := range p.annotations {
		n := &p.annotations[i]
		began := time.Now()
		value, err := n.eval(ctx, in, &left)
		if err != nil {
			if !p.ignore {
				r.m.checked(time.Since(began), p.name, b.name, errorType(err), "deny")
				r.deny(p, b, err.Error(), metav1.StatusReasonInvalid)
			}
			if errors.Is(err, request.ErrBudget) {
				return nil
			}
			continue
		}
		if text, ok := value.Value().(string); ok {
			r.keep(n.key, strings.TrimSpace(text))
		}
	}
	return nil
}

// keep keeps the value of an annotation once.
func (r *review) keep(key, text string) {
	if text == "" {
		return
	}
	text = text[:min(len(text), maxNote)]
	for _, other := range r.notes[key] {
		if other == text {
			return
		}
	}
	if r.notes == nil {
		r.notes = map[string][]string{}
	}
	r.notes[key] = append(r.notes[key], text)
}

// maxFailures is how many failures the audit log is told of.
const maxFailures = 50

// result tells the audit log what has failed, and refuses the write if one of the policies does.
func (r *review) result() error {
	a := r.t.Attributes()
	if len(r.failures) > 0 {
		if text, err := json.Marshal(r.failures[:min(len(r.failures), maxFailures)]); err == nil {
			a.Audit.Annotate("validation.policy.admission.k8s.io/validation_failure", string(text))
		}
	}
	if r.denied == nil {
		return nil
	}
	var out *apierrors.StatusError
	if err := a.Forbid("%s", r.denied.message); !errors.As(err, &out) {
		return err
	}
	out.ErrStatus.Reason = r.denied.reason
	if out.ErrStatus.Reason == "" {
		out.ErrStatus.Reason = metav1.StatusReasonInvalid
	}
	out.ErrStatus.Code = codeOf(out.ErrStatus.Reason)
	out.ErrStatus.Details.Causes = append(out.ErrStatus.Details.Causes, metav1.StatusCause{Message: r.denied.message})
	return out
}

// codeOf is the code of HTTP for a reason that a validation may give.
func codeOf(reason metav1.StatusReason) int32 {
	switch reason {
	case metav1.StatusReasonForbidden:
		return http.StatusForbidden
	case metav1.StatusReasonRequestEntityTooLarge:
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusUnprocessableEntity
}
