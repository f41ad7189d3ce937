package policy

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/admissionregistration"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// mayRefer refuses policies and bindings whose params their author may not read: what a policy
// sees of them it can tell in messages.
func mayRefer(ctx context.Context, o *admission.Options, a *admission.Attributes) error {
	if o.Authorizer == nil || a.Sub != "" || a.User == nil || slices.Contains(a.User.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	r := referrer{o, a}
	switch obj := a.Object.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		old, _ := a.Old.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		if old == nil || !equality.Semantic.DeepEqual(old.Spec.ParamKind, obj.Spec.ParamKind) {
			return r.kind(ctx, obj.Spec.ParamKind)
		}
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		old, _ := a.Old.(*admissionregistrationv1.MutatingAdmissionPolicy)
		if old == nil || !equality.Semantic.DeepEqual(old.Spec.ParamKind, obj.Spec.ParamKind) {
			return r.kind(ctx, obj.Spec.ParamKind)
		}
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		old, _ := a.Old.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
		if old == nil || old.Spec.PolicyName != obj.Spec.PolicyName || !equality.Semantic.DeepEqual(old.Spec.ParamRef, obj.Spec.ParamRef) {
			return r.ref(ctx, obj.Spec.ParamRef, admissionregistration.ValidatingAdmissionPolicies.Def, obj.Spec.PolicyName)
		}
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		old, _ := a.Old.(*admissionregistrationv1.MutatingAdmissionPolicyBinding)
		if old == nil || old.Spec.PolicyName != obj.Spec.PolicyName || !equality.Semantic.DeepEqual(old.Spec.ParamRef, obj.Spec.ParamRef) {
			return r.ref(ctx, obj.Spec.ParamRef, admissionregistration.MutatingAdmissionPolicies.Def, obj.Spec.PolicyName)
		}
	}
	return nil
}

type referrer struct {
	o *admission.Options
	a *admission.Attributes
}

// kind: who makes a policy must be allowed to read all objects of its param kind.
func (r referrer) kind(ctx context.Context, k *admissionregistrationv1.ParamKind) error {
	if k == nil {
		return nil
	}
	ok, err := r.mayGet(ctx, k, "*", "*")
	if ok || err != nil {
		return err
	}
	return r.refuse("paramKind", fmt.Sprintf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, r.a.User, k.Kind, k.APIVersion))
}

// ref: who makes a binding must be allowed to read the params that it names.
func (r referrer) ref(ctx context.Context, ref *admissionregistrationv1.ParamRef, policies *resource.Def, name string) error {
	if ref == nil {
		return nil
	}
	var k *admissionregistrationv1.ParamKind
	switch p := cache.Finder(r.o.Caches)(policies, "", name).(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		k = p.Spec.ParamKind
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		k = p.Spec.ParamKind
	}
	ok, err := r.mayGet(ctx, k, ref.Namespace, ref.Name)
	if ok || err != nil {
		return err
	}
	return r.refuse("paramRef", fmt.Sprintf(`user %v does not have "get" permission on the object referenced by paramRef`, r.a.User))
}

// mayGet reports whether the user may read an object of a kind (nil: of any).
func (r referrer) mayGet(ctx context.Context, k *admissionregistrationv1.ParamKind, namespace, name string) (bool, error) {
	asks := authorizer.AttributesRecord{
		User: r.a.User, Verb: "get", ResourceRequest: true, Namespace: namespace, Name: name, APIGroup: "*", APIVersion: "*", Resource: "*",
	}
	if k != nil {
		gvk := schema.FromAPIVersionAndKind(k.APIVersion, k.Kind)
		asks.APIGroup, asks.APIVersion = gvk.Group, gvk.Version
		if found, err := kindOf(r.o, k); err == nil {
			asks.Resource = found.Def.Plural
		}
	}
	decision, _, err := r.o.Authorizer.Authorize(ctx, asks)
	return decision == authorizer.DecisionAllow, err
}

func (r referrer) refuse(at, why string) error {
	obj := r.a.Object.(resource.Object)
	return apierrors.NewInvalid(r.a.Def.GVK().GroupKind(), obj.GetName(), field.ErrorList{field.Forbidden(field.NewPath("spec", at), why)})
}
