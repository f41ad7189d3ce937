package static

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/admissionregistration"
	"github.com/kemudi/kemudi/internal/resource"
)

// Pair is a kind of policies and that of their bindings.
type Pair struct{ Policies, Bindings *resource.Def }

// Policies reads what lies in the directory that a plugin of policies is told of.
func Policies(o *admission.Options, plugin string, of Pair) (*Set, error) {
	var told struct {
		APIVersion         string `json:"apiVersion"`
		Kind               string `json:"kind"`
		StaticManifestsDir string `json:"staticManifestsDir"`
	}
	if err := o.Config.Read(plugin, &told, "apiserver.config.k8s.io/v1 "+plugin+"Configuration"); err != nil {
		return nil, err
	}
	s, err := Open(o, Kinds{Plugin: plugin, Defs: []*resource.Def{of.Policies, of.Bindings}, Check: checkPolicy, Whole: of.whole}, told.StaticManifestsDir)
	if err != nil {
		return nil, admission.Misconfigured(plugin, err)
	}
	return s, nil
}

// checkPolicy refuses params: a server that starts does not know what these are.
func checkPolicy(obj resource.Object) error {
	switch p := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		if p.Spec.ParamKind != nil {
			return fmt.Errorf("ValidatingAdmissionPolicy %q: spec.paramKind is not supported for static manifests", p.Name)
		}
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		if p.Spec.ParamKind != nil {
			return fmt.Errorf("MutatingAdmissionPolicy %q: spec.paramKind is not supported for static manifests", p.Name)
		}
	default:
		bound, ref := boundTo(obj)
		if !strings.HasSuffix(bound, admissionregistration.StaticSuffix) {
			return fmt.Errorf("binding %q: spec.policyName %q must end with %q", obj.GetName(), bound, admissionregistration.StaticSuffix)
		}
		if ref != nil {
			return fmt.Errorf("binding %q: spec.paramRef is not supported for static manifests", obj.GetName())
		}
	}
	return nil
}

// boundTo is the policy that a binding puts in force, and with which params.
func boundTo(obj resource.Object) (policy string, params *admissionregistrationv1.ParamRef) {
	switch b := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return b.Spec.PolicyName, b.Spec.ParamRef
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		return b.Spec.PolicyName, b.Spec.ParamRef
	}
	return "", nil
}

// whole refuses bindings of policies that are not there.
func (p Pair) whole(c *Content) error {
	there := map[string]bool{}
	for _, obj := range c.Of(p.Policies) {
		there[obj.GetName()] = true
	}
	for _, obj := range c.Of(p.Bindings) {
		if policy, _ := boundTo(obj); !there[policy] {
			return fmt.Errorf("binding %q references policy %q which does not exist in the manifest directory", obj.GetName(), policy)
		}
	}
	return nil
}
