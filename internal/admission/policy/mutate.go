package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/match"
	"github.com/kemudi/kemudi/internal/admission/static"
	"github.com/kemudi/kemudi/internal/api/admissionregistration"
	"github.com/kemudi/kemudi/internal/cel/request"
	"github.com/kemudi/kemudi/internal/resource"
)

// mutating is a compiled MutatingAdmissionPolicy.
type mutating struct {
	head
	again     bool // it is asked again when others have changed the object after it
	mutations []mutation
}

// mutation is one change of the object: a part that is applied to it, or a JSON patch.
type mutation struct {
	expression
	operations bool
}

func compileMutating(obj resource.Object) *mutating {
	p := obj.(*admissionregistrationv1.MutatingAdmissionPolicy)
	s := &p.Spec
	h, in := newHead(spec{p.Name, s.FailurePolicy, s.ParamKind, s.MatchConstraints, s.MatchConditions, s.Variables})
	out := &mutating{head: h, again: s.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy}
	for _, m := range s.Mutations {
		one := mutation{operations: m.PatchType == admissionregistrationv1.PatchTypeJSONPatch}
		compile := in.CompileApplied
		switch {
		case one.operations && m.JSONPatch != nil:
			one.text, compile = m.JSONPatch.Expression, in.CompileOperations
		case !one.operations && m.ApplyConfiguration != nil:
			one.text = m.ApplyConfiguration.Expression
		}
		is, err := compile(strings.TrimSpace(one.text))
		if one.is = is; err != nil {
			one.err = notCompiled{err}
		}
		out.mutations = append(out.mutations, one)
	}
	return out
}

// NewMutating changes what is written as MutatingAdmissionPolicies say it.
func NewMutating(o *admission.Options) (admission.Plugin, error) {
	as := admission.Plugin{Name: "MutatingAdmissionPolicy"}
	s, err := newSet[*mutating](o, as.Name, static.Pair{
		Policies: admissionregistration.MutatingAdmissionPolicies.Def, Bindings: admissionregistration.MutatingAdmissionPolicyBindings.Def,
	})
	p := &mutator{o: o, m: mutatingMetrics(o.Registry), set: s}
	s.compile = timed(p.m.all, compileMutating)
	s.bind = func(obj resource.Object) *binding {
		b := obj.(*admissionregistrationv1.MutatingAdmissionPolicyBinding)
		return newBinding(b.Name, b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)
	}
	as.Mutate, as.Run = p.mutate, s.files.Runner()
	as.Validate = func(ctx context.Context, a *admission.Attributes) error {
		if match.Exempt(a) {
			return mayRefer(ctx, o, a)
		}
		return nil
	}
	return as, err
}

// about are the policies that are asked about a write: about policies, bindings and webhooks those of files alone, as
// others could be used to lock everybody out.
func about[C any](s *set[C], a *admission.Attributes) []active[C] {
	switch {
	case !match.Exempt(a):
		return s.inForce()
	case a.Def.Group == admissionregistration.Group:
		return s.fixed()
	}
	return nil
}

type mutator struct {
	o   *admission.Options
	m   *metrics
	set *set[*mutating]
}

func (p *mutator) mutate(ctx context.Context, a *admission.Attributes) error {
	if a.Operation == admission.Delete || a.Object == nil {
		return nil
	}
	policies := about(p.set, a)
	if len(policies) == 0 {
		return nil
	}
	c := &change{o: p.o, m: p.m, t: match.New(p.o, a)}
	c.calls(ctx, policies)
	c.recall()
	for i := range c.asked {
		if err := c.ask(ctx, &c.asked[i]); err != nil {
			return err
		}
	}
	c.remember()
	return c.result()
}

// change is what policies make of one write.
type change struct {
	o *admission.Options
	m *metrics
	t *match.Target

	asked  []invocation
	past   *past
	denied []denial // all of them, the first first
}

// invocation is one policy that is asked for one binding and one param.
type invocation struct {
	call
	policy  *mutating
	binding *binding
}

// key tells invocations of one write apart.
type key struct{ policy, binding, paramNamespace, param string }

func (i *invocation) key() key {
	k := key{policy: i.policy.name, binding: i.binding.name}
	if obj, ok := i.param.(metav1.Object); ok {
		k.paramNamespace, k.param = obj.GetNamespace(), obj.GetName()
	}
	return k
}

// deny refuses the write for a policy, and for one of its bindings (nil: for none), unless the
// policy does not want that.
func (c *change) deny(p *mutating, b *binding, err error, reason metav1.StatusReason) {
	switch {
	case p.ignore:
	case b == nil:
		c.denied = append(c.denied, denial{fmt.Sprintf("policy %q denied request: %s", p.name, err), reason})
	default:
		c.denied = append(c.denied, denial{fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", p.name, b.name, err), reason})
	}
}

// calls finds who is to be asked, by the write as it was before the first.
func (c *change) calls(ctx context.Context, policies []active[*mutating]) {
	for i := range policies {
		p := policies[i].policy()
		v, err := (*match.Version)(nil), p.wrong
		if err == nil {
			v, err = p.criteria.Matches(ctx, c.t)
		}
		if err == nil && v == nil {
			continue
		}
		var kind *paramKind
		if err == nil {
			kind, err = kindOf(c.o, p.params)
		}
		if err != nil {
			c.deny(p, nil, fmt.Errorf("failed to configure policy: %w", err), "")
			continue
		}
		for _, b := range policies[i].bindings {
			ok, err := b.matches(ctx, c.t)
			if err == nil && !ok {
				continue
			}
			var all []runtime.Object
			if err == nil {
				all, err = params(ctx, c.o, kind, b.params, c.t)
			}
			if err != nil {
				c.deny(p, b, fmt.Errorf("failed to configure binding: %w", err), "")
			}
			for _, param := range all {
				c.asked = append(c.asked, invocation{call{t: c.t, v: v, param: param, o: c.o, m: c.m}, p, b})
			}
		}
	}
}

// past is what is known in the second pass of the first.
type past struct {
	left  runtime.Object // the object as the policies have left it
	ready map[key]bool   // who was asked, and wants to be asked again when the object changes
	due   map[key]bool   // who is to be asked again
}

type pastKey struct{}

// recall finds what the first pass has left. If other plugins have changed the object since, who wants it is
// asked again.
func (c *change) recall() {
	a := c.t.Attributes()
	if c.past, _ = a.Kept(pastKey{}).(*past); c.past == nil {
		c.past = &past{ready: map[key]bool{}, due: map[key]bool{}}
	}
	if a.Pass > 0 && !same(c.past.left, a.Object) {
		c.past.changed()
	}
}

// remember notes how the object is now, if there may be a second pass to which that matters.
func (c *change) remember() {
	if a := c.t.Attributes(); a.Pass == 0 && len(c.asked) > 0 {
		c.past.left = a.Object.DeepCopyObject()
		a.Keep(pastKey{}, c.past)
	}
}

// changed says that the object is not as those have left it who were asked.
func (p *past) changed() {
	for k := range p.ready {
		p.due[k] = true
	}
	clear(p.ready)
}

// ask has one policy change the object. An error refuses the write, whatever the policy wants.
func (c *change) ask(ctx context.Context, i *invocation) error {
	a := c.t.Attributes()
	if a.Pass > 0 && !c.past.due[i.key()] {
		return nil
	}
	var err error
	if i.form, err = c.t.At(ctx, i.v); err != nil {
		c.deny(i.policy, nil, err, "")
		return nil
	}
	switch ok, err := i.policy.wants(ctx, &i.call); {
	case err != nil:
		c.deny(i.policy, i.binding, err, metav1.StatusReasonInvalid)
		return nil
	case !ok:
		return nil
	}
	before := i.form.Object
	for m := range i.policy.mutations {
		began := time.Now()
		if i.form, err = c.t.At(ctx, i.v); err == nil {
			err = i.policy.apply(ctx, &i.call, &i.policy.mutations[m])
		}
		c.m.checked(time.Since(began), i.policy.name, i.binding.name, errorType(err))
		if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
			return status
		}
		if err != nil {
			c.deny(i.policy, i.binding, err, metav1.StatusReasonInvalid)
		}
	}
	if i.form, err = c.t.At(ctx, i.v); err != nil {
		return apierrors.NewInternalError(err)
	}
	if !same(before, i.form.Object) {
		c.past.changed()
		a.Again()
	}
	if i.policy.again {
		c.past.ready[i.key()] = true
	}
	return nil
}

// apply changes the object by one mutation.
func (p *mutating) apply(ctx context.Context, c *call, m *mutation) error {
	if m.err != nil {
		return m.err
	}
	content, err := treeOf(c.form.Object)
	if err != nil {
		return err
	}
	in, err := c.input(ctx, document{&unstructured.Unstructured{Object: content}}, true)
	if err != nil {
		return err
	}
	left := budget
	p.declared.Bind(ctx, in, &left)
	began := time.Now()
	value, err := m.eval(ctx, in, &left)
	c.m.all.Evaluated(time.Since(began))
	if err != nil {
		return err
	}
	var made runtime.Object
	if m.operations {
		var operations []byte
		if operations, err = request.Operations(value); err == nil {
			made, err = operated(c, operations)
		}
	} else {
		var part map[string]any
		if part, err = request.Applied(value); err == nil {
			made, err = merged(c, part)
		}
	}
	if err != nil {
		return err
	}
	return c.t.Replace(c.v, made)
}

// result refuses the write if a policy does, in the words of the first.
func (c *change) result() error {
	if len(c.denied) == 0 {
		return nil
	}
	var out *apierrors.StatusError
	if err := c.t.Attributes().Forbid("admission request denied by policy"); !errors.As(err, &out) {
		return err
	}
	first := c.denied[0]
	out.ErrStatus.Message = first.message
	if first.reason != "" {
		out.ErrStatus.Reason = first.reason
	}
	for _, d := range c.denied {
		out.ErrStatus.Details.Causes = append(out.ErrStatus.Details.Causes, metav1.StatusCause{Message: d.message})
	}
	return out
}
