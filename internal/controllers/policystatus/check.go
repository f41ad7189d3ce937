package policystatus

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apicel "k8s.io/apiserver/pkg/cel"

	"github.com/kemudi/kemudi/internal/cel/request"
	"github.com/kemudi/kemudi/internal/resource"
)

// maxTypes is with how many kinds the expressions of a policy are checked.
const maxTypes = 10

// checker checks the expressions of one policy.
type checker struct {
	spec   *admissionregistrationv1.ValidatingAdmissionPolicySpec
	kinds  []kind
	params *apicel.DeclType // nil: nothing is known of them
}

// kind is one with whose objects expressions are checked.
type kind struct {
	gvk schema.GroupVersionKind
	is  *apicel.DeclType
}

// check lists what is wrong with a policy's expressions, by what is served.
func check(p *admissionregistrationv1.ValidatingAdmissionPolicy, defs []*resource.Def) []admissionregistrationv1.ExpressionWarning {
	c := checker{spec: &p.Spec, kinds: named(p.Spec.MatchConstraints, defs)}
	if k := p.Spec.ParamKind; k != nil {
		// Not by the name of the variable: params.spec would then be the type of that name.
		c.params = typeOf(defs, schema.FromAPIVersionAndKind(k.APIVersion, k.Kind), "ParamsOf"+k.Kind)
	}
	var all []admissionregistrationv1.ExpressionWarning
	for i := range p.Spec.Validations {
		v := &p.Spec.Validations[i]
		for _, e := range []struct{ field, text string }{{"expression", v.Expression}, {"messageExpression", v.MessageExpression}} {
			if e.text == "" {
				continue
			}
			if wrong := c.wrong(e.text); wrong != "" {
				all = append(all, admissionregistrationv1.ExpressionWarning{FieldRef: fmt.Sprintf("spec.validations[%d].%s", i, e.field), Warning: wrong})
			}
		}
	}
	return all
}

// wrong is what is wrong with an expression, kind by kind; empty: nothing.
func (c *checker) wrong(text string) string {
	var all []string
	for _, k := range c.kinds {
		env, err := request.Typed(request.Types{Object: k.is, Params: c.params}, c.spec.ParamKind != nil)
		if err != nil {
			all = append(all, fmt.Sprintf("%v: type checking error: %v\n", k.gvk, err))
			continue
		}
		in := request.Scope{Mode: request.Stored, Base: env}
		for _, v := range c.spec.Variables {
			_ = in.Declare(v.Name, v.Expression) // who uses it is told
		}
		if _, err := in.Compile(text, true, cel.AnyType); err != nil {
			all = append(all, fmt.Sprintf("%v: %s\n", k.gvk, issues(err)))
		}
	}
	return strings.Join(all, "\n")
}

// issues are what the compiler has against an expression.
func issues(err *apicel.Error) string {
	var c *apicel.CompilationError
	if errors.As(err, &c) {
		return c.Issues.String()
	}
	return err.Error()
}

// named are the kinds that the rules of a policy name, one by one: where there is a star, nobody
// knows which are meant.
func named(m *admissionregistrationv1.MatchResources, defs []*resource.Def) []kind {
	if m == nil {
		return nil
	}
	var all []kind
	for i := range m.ResourceRules {
		r := &m.ResourceRules[i]
		if slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIVersions, "*") {
			continue
		}
		for _, d := range defs {
			if !slices.Contains(r.Resources, d.Plural) {
				continue
			}
			for _, gv := range versions(d) {
				gvk := gv.WithKind(d.Kind)
				if !slices.Contains(r.APIGroups, gv.Group) || !slices.Contains(r.APIVersions, gv.Version) || slices.ContainsFunc(all, func(k kind) bool { return k.gvk == gvk }) {
					continue
				}
				if is := typeOf(defs, gvk, d.Kind); is != nil && len(all) < maxTypes {
					all = append(all, kind{gvk, is})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b kind) int {
		return cmp.Or(strings.Compare(a.gvk.Group, b.gvk.Group), strings.Compare(a.gvk.Version, b.gvk.Version), strings.Compare(a.gvk.Kind, b.gvk.Kind))
	})
	return all
}

// versions are all group-versions of a resource.
func versions(d *resource.Def) []schema.GroupVersion {
	var all []schema.GroupVersion
	if d.Dynamic == nil {
		all = append(all, d.GVK().GroupVersion())
	}
	for i := range d.Versions {
		all = append(all, schema.GroupVersion{Group: d.Versions[i].Group, Version: d.Versions[i].Version})
	}
	return all
}

// typeOf is what is known of a kind; nil: nothing.
func typeOf(defs []*resource.Def, gvk schema.GroupVersionKind, name string) *apicel.DeclType {
	for _, d := range defs {
		if d.Kind != gvk.Kind {
			continue
		}
		for i := range d.Versions {
			v := &d.Versions[i]
			switch {
			case v.Group != gvk.Group || v.Version != gvk.Version:
			case v.Live == nil:
				return request.TypeOf(reflect.TypeOf(v.New()), name)
			case v.Live.Model != nil:
				if s := v.Live.Model(3); s != nil {
					return request.TypeOfSchema(s, name)
				}
				return nil
			default:
				return nil
			}
		}
		if d.GVK() == gvk && d.Dynamic == nil {
			return request.TypeOf(reflect.TypeOf(d.New()), name)
		}
	}
	return nil
}
