package plugins

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/resource"
)

// ownerReferencesPermissionEnforcement looks at changes of owner references:
// with them a user can have an object deleted, or hold up the deletion of another.
func ownerReferencesPermissionEnforcement(o *admission.Options) admission.Plugin {
	return admission.Plugin{Name: "OwnerReferencesPermissionEnforcement", Validate: func(ctx context.Context, a *admission.Attributes) error {
		obj, ok := a.Object.(resource.Object)
		if !ok || a.Operation != admission.Create && a.Operation != admission.Update {
			return nil
		}
		now, before := obj.GetOwnerReferences(), []metav1.OwnerReference(nil)
		if a.Old != nil {
			before = a.Old.GetOwnerReferences()
		}
		if slices.EqualFunc(now, before, sameReference) {
			return nil
		}
		// A new object can be deleted by who may create it, as far as is known here.
		if a.Operation == admission.Create {
			return blocks(ctx, o, a, now, before)
		}
		ok, why := ask(ctx, o, authorizer.AttributesRecord{
			User: a.User, Verb: "delete", Namespace: a.Namespace, Name: a.Name,
			APIGroup: a.Def.Group, APIVersion: a.Def.Version, Resource: a.Def.Plural,
		})
		if !ok {
			return a.Forbid("cannot set an ownerRef on a resource you can't delete: %s", why)
		}
		return blocks(ctx, o, a, now, before)
	}}
}

// blocks checks that the user may hold up the deletion of the new owners for
// which the object asks that.
func blocks(ctx context.Context, o *admission.Options, a *admission.Attributes, now, before []metav1.OwnerReference) error {
	for _, ref := range now {
		if ref.BlockOwnerDeletion == nil || !*ref.BlockOwnerDeletion {
			continue
		}
		if slices.ContainsFunc(before, func(b metav1.OwnerReference) bool { return sameReference(b, ref) }) {
			continue
		}
		owner, ok := kindOf(o, ref.APIVersion, ref.Kind)
		if !ok {
			return a.Forbid("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %v Kind %v", ref.APIVersion, ref.Kind)
		}
		attrs := authorizer.AttributesRecord{
			User: a.User, Verb: "update", Name: ref.Name,
			APIGroup: owner.Group, APIVersion: owner.Version, Resource: owner.Plural, Subresource: "finalizers",
		}
		if owner.Namespaced {
			attrs.Namespace = a.Namespace
		}
		if ok, why := ask(ctx, o, attrs); !ok {
			return a.Forbid("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %s", why)
		}
	}
	return nil
}

func sameReference(a, b metav1.OwnerReference) bool {
	yes := func(p *bool) bool { return p != nil && *p }
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		yes(a.Controller) == yes(b.Controller) && yes(a.BlockOwnerDeletion) == yes(b.BlockOwnerDeletion)
}

// kindOf finds the resource of a kind in any of its versions.
func kindOf(o *admission.Options, apiVersion, kind string) (*resource.Def, bool) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, false
	}
	for _, d := range o.Defs {
		if d.Kind != kind {
			continue
		}
		if d.GVK().GroupVersion() == gv {
			return d, true
		}
		for _, v := range d.Versions {
			if v.Group == gv.Group && v.Version == gv.Version {
				return d, true
			}
		}
	}
	return nil, false
}
