package match

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/resource"
)

// Spec is what a webhook, a policy or a binding says of the writes that it is for. Selectors
// that are nil select everything.
type Spec struct {
	Namespace, Object *metav1.LabelSelector
	Rules, Exclude    []admissionregistrationv1.NamedRuleWithOperations
	Policy            *admissionregistrationv1.MatchPolicyType
	// Unruled: without rules all writes are meant, and none otherwise.
	Unruled bool
}

// Named are rules of webhooks, which name no objects.
func Named(rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.NamedRuleWithOperations {
	all := make([]admissionregistrationv1.NamedRuleWithOperations, len(rules))
	for i := range rules {
		all[i].RuleWithOperations = rules[i]
	}
	return all
}

// Criteria is a Spec that was read. It may be used from several goroutines.
type Criteria struct {
	namespace, object labels.Selector
	rules, exclude    []admissionregistrationv1.NamedRuleWithOperations
	equivalent        bool
	unruled           bool
}

// Compile reads a Spec.
func Compile(s Spec) (*Criteria, error) {
	c := &Criteria{
		namespace: labels.Everything(), object: labels.Everything(), rules: s.Rules, exclude: s.Exclude, unruled: s.Unruled,
		equivalent: ptr.Deref(s.Policy, admissionregistrationv1.Exact) == admissionregistrationv1.Equivalent,
	}
	var err error
	if s.Namespace != nil {
		if c.namespace, err = metav1.LabelSelectorAsSelector(s.Namespace); err != nil {
			return nil, fmt.Errorf("namespaceSelector: %w", err)
		}
	}
	if s.Object != nil {
		if c.object, err = metav1.LabelSelectorAsSelector(s.Object); err != nil {
			return nil, fmt.Errorf("objectSelector: %w", err)
		}
	}
	return c, nil
}

// Matches returns the version of the write that is meant: the one that the request speaks, or an
// equivalent one that a rule names. Nil: the write is not meant. An error is that the namespace,
// whose labels decide, cannot be read.
func (c *Criteria) Matches(ctx context.Context, t *Target) (*Version, error) {
	if _, excluded := c.ruled(c.exclude, t); excluded {
		return nil, nil
	}
	v, ok := t.Requested(), true
	if len(c.rules) > 0 || !c.unruled {
		v, ok = c.ruled(c.rules, t)
	}
	if !ok || !c.selectsObject(t) {
		return nil, nil
	}
	if ok, err := c.selectsNamespace(ctx, t); !ok || err != nil {
		return nil, err
	}
	return v, nil
}

// ruled finds the version that the first of the rules is for.
func (c *Criteria) ruled(rules []admissionregistrationv1.NamedRuleWithOperations, t *Target) (*Version, bool) {
	for i := range rules {
		if names(&rules[i], t, t.Requested()) {
			return t.Requested(), true
		}
	}
	if !c.equivalent || len(rules) == 0 {
		return nil, false
	}
	for i := range rules {
		for _, v := range t.Equivalents() {
			if names(&rules[i], t, v) {
				return v, true
			}
		}
	}
	return nil, false
}

// names reports whether a rule is for the write at a version.
func names(r *admissionregistrationv1.NamedRuleWithOperations, t *Target, v *Version) bool {
	switch {
	case !slices.Contains(r.Operations, admissionregistrationv1.OperationAll) && !slices.Contains(r.Operations, admissionregistrationv1.OperationType(t.a.Operation)):
	case !has(r.APIGroups, v.Resource.Group), !has(r.APIVersions, v.Resource.Version):
	case !hasResource(r.Resources, v.Resource.Resource, t.a.Sub):
	case !inScope(r.Scope, t):
	case len(r.ResourceNames) > 0 && !slices.Contains(r.ResourceNames, t.Name()):
	default:
		return true
	}
	return false
}

// has reports whether a value, or the star that stands for all, is in a list.
func has(list []string, value string) bool {
	return slices.Contains(list, value) || slices.Contains(list, "*")
}

func hasResource(list []string, resource, sub string) bool {
	for _, entry := range list {
		res, ofSub, _ := strings.Cut(entry, "/")
		if (res == "*" || res == resource) && (ofSub == "*" || ofSub == sub) {
			return true
		}
	}
	return false
}

func inScope(scope *admissionregistrationv1.ScopeType, t *Target) bool {
	namespaced := t.a.Def.Namespaced
	switch ptr.Deref(scope, admissionregistrationv1.AllScopes) {
	case admissionregistrationv1.AllScopes:
		return true
	case admissionregistrationv1.NamespacedScope:
		return namespaced
	case admissionregistrationv1.ClusterScope:
		return !namespaced
	}
	return false
}

// selectsObject looks at what is and at what shall be: neither goes around a selector.
func (c *Criteria) selectsObject(t *Target) bool {
	if c.object.Empty() {
		return true
	}
	if obj, ok := t.a.Object.(resource.Object); ok && c.object.Matches(labels.Set(obj.GetLabels())) {
		return true
	}
	return t.a.Old != nil && c.object.Matches(labels.Set(t.a.Old.GetLabels()))
}

// selectsNamespace looks at the namespace that the object is in, or at the namespace that the
// object is; what is in none is never left out.
func (c *Criteria) selectsNamespace(ctx context.Context, t *Target) (bool, error) {
	if c.namespace.Empty() {
		return true, nil
	}
	if t.a.Def.IsNamespace {
		if obj, ok := t.a.Object.(resource.Object); ok && t.a.Sub == "" && t.a.Operation != admission.Delete {
			return c.namespace.Matches(labels.Set(obj.GetLabels())), nil
		}
		if t.a.Old != nil {
			return c.namespace.Matches(labels.Set(t.a.Old.GetLabels())), nil
		}
	}
	if !t.a.Def.Namespaced {
		return true, nil
	}
	ns, err := t.Namespace(ctx)
	if err != nil {
		return false, err
	}
	return c.namespace.Matches(labels.Set(ns.Labels)), nil
}
