package bootstrap

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/kemudi/kemudi/internal/api/rbac"
	"github.com/kemudi/kemudi/internal/auth/rbac"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// parallel is how many writes of Reconcile are under way at one time: the
// store writes them to the disk together.
const parallel = 16

// Reconcile brings a policy into the cluster: it makes what is missing and adds
// rules and subjects that have been taken away. What was added to the policy's
// roles stays. t must be of a user who may do everything. The namespaces of
// the roles must exist.
func Reconcile(ctx context.Context, t client.Transport, p Policy) error {
	var work []func(context.Context) error
	steps := []func() ([]func(context.Context) error, error){
		func() ([]func(context.Context) error, error) {
			return plan(ctx, client.For(t, api.ClusterRoles), withAggregates(p.ClusterRoles), mendClusterRole)
		},
		func() ([]func(context.Context) error, error) {
			return plan(ctx, client.For(t, api.Roles), p.Roles, mendRole)
		},
		func() ([]func(context.Context) error, error) {
			return plan(ctx, client.For(t, api.ClusterRoleBindings), p.ClusterRoleBindings, mendClusterBinding)
		},
		func() ([]func(context.Context) error, error) {
			return plan(ctx, client.For(t, api.RoleBindings), p.RoleBindings, mendBinding)
		},
	}
	for _, step := range steps {
		more, err := step()
		if err != nil {
			return err
		}
		work = append(work, more...)
	}
	g := task.NewGroup(ctx)
	free := make(chan struct{}, parallel)
	for _, w := range work {
		free <- struct{}{}
		g.Go("write default policy", func(ctx context.Context) error {
			defer func() { <-free }()
			return w(ctx)
		})
	}
	return g.Wait()
}

// mender compares what is there with what is wanted. It returns the object to
// write, nil if all is well; again says that it must be deleted and made anew.
type mender[T resource.Object] func(have, want T) (obj T, again bool)

// plan compares all objects of a kind and returns what is to be written.
func plan[T resource.Object](ctx context.Context, c client.Client[T], wants []T, mend mender[T]) ([]func(context.Context) error, error) {
	list, err := c.List(ctx, "", metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list default policy: %w", err)
	}
	type key struct{ namespace, name string }
	have := map[key]T{}
	for _, obj := range list {
		have[key{obj.GetNamespace(), obj.GetName()}] = obj
	}
	var work []func(context.Context) error
	for _, want := range wants {
		old, ok := have[key{want.GetNamespace(), want.GetName()}]
		if !ok {
			work = append(work, func(ctx context.Context) error { return create(ctx, c, want) })
			continue
		}
		if old.GetAnnotations()[AutoUpdate] == "false" {
			continue
		}
		obj, again := mend(old, want)
		switch {
		case again:
			work = append(work, func(ctx context.Context) error { return replace(ctx, c, old, want) })
		case !isNil(obj):
			work = append(work, func(ctx context.Context) error { return update(ctx, c, obj) })
		}
	}
	return work, nil
}

func isNil[T resource.Object](obj T) bool {
	var none T
	return any(obj) == any(none)
}

func create[T resource.Object](ctx context.Context, c client.Client[T], obj T) error {
	_, err := c.Create(ctx, obj.DeepCopyObject().(T))
	if err != nil && !apierrors.IsAlreadyExists(err) { // another server is as far
		return fmt.Errorf("create %T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

func update[T resource.Object](ctx context.Context, c client.Client[T], obj T) error {
	_, err := c.Update(ctx, obj)
	if err != nil && !apierrors.IsConflict(err) { // likewise
		return fmt.Errorf("update %T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

func replace[T resource.Object](ctx context.Context, c client.Client[T], old, obj T) error {
	uid := old.GetUID()
	err := c.Delete(ctx, old.GetNamespace(), old.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %T %s: %w", old, old.GetName(), err)
	}
	return create(ctx, c, obj)
}

// withAggregates fills in the rules of aggregated roles, so that they work
// from the start; a controller keeps them up.
func withAggregates(roles []*rbacv1.ClusterRole) []*rbacv1.ClusterRole {
	out := slices.Clone(roles)
	for range out { // roles may be made of roles that are aggregated themselves
		changed := false
		for i, r := range out {
			rules, err := rbac.Aggregate(r, out)
			if r.AggregationRule == nil || err != nil || equality.Semantic.DeepEqual(rules, r.Rules) {
				continue
			}
			out[i] = r.DeepCopy()
			out[i].Rules, changed = rules, true
		}
		if !changed {
			break
		}
	}
	return out
}

func mendClusterRole(have, want *rbacv1.ClusterRole) (*rbacv1.ClusterRole, bool) {
	obj := have.DeepCopy()
	changed := addMeta(&obj.ObjectMeta, &want.ObjectMeta)
	switch {
	case want.AggregationRule != nil && have.AggregationRule == nil:
		obj.AggregationRule, changed = want.AggregationRule, true
	case want.AggregationRule != nil:
		for _, s := range want.AggregationRule.ClusterRoleSelectors {
			same := func(o metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(o, s) }
			if !slices.ContainsFunc(have.AggregationRule.ClusterRoleSelectors, same) {
				obj.AggregationRule.ClusterRoleSelectors = append(obj.AggregationRule.ClusterRoleSelectors, s)
				changed = true
			}
		}
	case have.AggregationRule == nil:
		changed = addRules(&obj.Rules, want.Rules) || changed
	}
	if !changed {
		return nil, false
	}
	return obj, false
}

func mendRole(have, want *rbacv1.Role) (*rbacv1.Role, bool) {
	obj := have.DeepCopy()
	changed := addMeta(&obj.ObjectMeta, &want.ObjectMeta)
	if !addRules(&obj.Rules, want.Rules) && !changed {
		return nil, false
	}
	return obj, false
}

func mendClusterBinding(have, want *rbacv1.ClusterRoleBinding) (*rbacv1.ClusterRoleBinding, bool) {
	if have.RoleRef != want.RoleRef {
		return nil, true
	}
	obj := have.DeepCopy()
	changed := addMeta(&obj.ObjectMeta, &want.ObjectMeta)
	if !addSubjects(&obj.Subjects, want.Subjects) && !changed {
		return nil, false
	}
	return obj, false
}

func mendBinding(have, want *rbacv1.RoleBinding) (*rbacv1.RoleBinding, bool) {
	if have.RoleRef != want.RoleRef {
		return nil, true
	}
	obj := have.DeepCopy()
	changed := addMeta(&obj.ObjectMeta, &want.ObjectMeta)
	if !addSubjects(&obj.Subjects, want.Subjects) && !changed {
		return nil, false
	}
	return obj, false
}

func addRules(have *[]rbacv1.PolicyRule, want []rbacv1.PolicyRule) bool {
	ok, missing := rbac.Covers(*have, want)
	if !ok {
		*have = append(*have, rbac.Compact(missing)...)
	}
	return !ok
}

func addSubjects(have *[]rbacv1.Subject, want []rbacv1.Subject) bool {
	changed := false
	for _, s := range want {
		if !slices.Contains(*have, s) {
			*have, changed = append(*have, s), true
		}
	}
	return changed
}

// addMeta adds labels and annotations that are missing; those that are there
// with other values stay.
func addMeta(have, want *metav1.ObjectMeta) bool {
	changed := addMissing(&have.Labels, want.Labels)
	return addMissing(&have.Annotations, want.Annotations) || changed
}

func addMissing(have *map[string]string, want map[string]string) bool {
	changed := false
	for k, v := range want {
		if _, ok := (*have)[k]; ok {
			continue
		}
		if *have == nil {
			*have = map[string]string{}
		}
		(*have)[k], changed = v, true
	}
	return changed
}
