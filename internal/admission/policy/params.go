package policy

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/match"
	"github.com/kemudi/kemudi/internal/cache"
)

// paramKind is a kind of params as it is served at present.
type paramKind struct{ match.Kind }

// kindOf finds the kind of a policy's params; nil: the policy has none. What is served
// may have changed since the policy was written.
func kindOf(o *admission.Options, k *admissionregistrationv1.ParamKind) (*paramKind, error) {
	if k == nil {
		return nil, nil
	}
	gvk := schema.FromAPIVersionAndKind(k.APIVersion, k.Kind)
	for _, d := range o.Present() {
		if d.Kind != gvk.Kind || !d.Stored() || !o.Serves(d) {
			continue
		}
		for i := range d.Versions {
			if v := &d.Versions[i]; v.Group == gvk.Group && v.Version == gvk.Version {
				return &paramKind{match.Kind{Def: d, Version: v, GVK: gvk}}, nil
			}
		}
		if d.GVK() == gvk {
			return &paramKind{match.Kind{Def: d, GVK: gvk}}, nil
		}
	}
	return nil, fmt.Errorf("failed to find resource referenced by paramKind: '%v'", gvk)
}

// params are those with which a policy is asked about a write, each at the version that the policy
// names: one nil if it has none, and none if none is found and the binding lets that pass.
func params(ctx context.Context, o *admission.Options, k *paramKind, ref *admissionregistrationv1.ParamRef, t *match.Target) ([]runtime.Object, error) {
	if k == nil || ref == nil {
		return []runtime.Object{nil}, nil
	}
	namespace := ref.Namespace
	if k.Def.Namespaced && namespace == "" {
		if namespace = t.In(); namespace == "" {
			return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
		}
	}
	if !k.Def.Namespaced && namespace != "" {
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	}
	c := o.Caches(k.Def)
	if c == nil {
		return nil, fmt.Errorf("paramKind kind `%v` not known", k.GVK)
	}
	select {
	case <-c.Synced():
	default:
		return nil, fmt.Errorf("paramKind kind `%v` not yet synced to use for admission", k.GVK)
	}
	items, err := k.find(ctx, o, c, reference{ref, namespace})
	if err != nil {
		return nil, err
	}
	if len(items) == 0 && ptr.Deref(ref.ParameterNotFoundAction, "") == admissionregistrationv1.DenyAction {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	all := make([]runtime.Object, len(items))
	for i, it := range items {
		if all[i], err = k.Show(ctx, it.Object); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// reference is where params are looked for.
type reference struct {
	*admissionregistrationv1.ParamRef
	namespace string
}

// find looks params up, and again in a fresh cache if there are none: they may have been
// written just before the binding.
func (k *paramKind) find(ctx context.Context, o *admission.Options, c *cache.Cache, r reference) ([]*cache.Item, error) {
	look := func() []*cache.Item {
		if it := c.Get(cache.Key(r.namespace, r.Name)); it != nil {
			return []*cache.Item{it}
		}
		return nil
	}
	switch {
	case r.Name != "":
	case r.Selector == nil:
		return nil, errors.New("one of name or selector must be provided")
	default:
		selector, err := metav1.LabelSelectorAsSelector(r.Selector)
		if err != nil {
			return nil, err
		}
		look = func() []*cache.Item { return c.List(r.namespace, selector) }
	}
	items := look()
	if len(items) > 0 || o.Fresh == nil {
		return items, nil
	}
	if err := o.Fresh(ctx); err != nil {
		return nil, err
	}
	return look(), nil
}
