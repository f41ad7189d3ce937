// Package clusterroleaggregation keeps the rules of cluster roles that are made
// of others (aggregationRule) as those others have them.
package clusterroleaggregation

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	api "github.com/kemudi/kemudi/internal/api/rbac"
	"github.com/kemudi/kemudi/internal/auth/rbac"
	"github.com/kemudi/kemudi/internal/controller"
)

// Controller is the cluster role aggregation controller.
var Controller = controller.New(controller.Spec[*rbacv1.ClusterRole]{
	Name: "clusterrole-aggregation-controller",
	For:  api.ClusterRoles,
	// Any role may begin or cease to match: all that are made of others look.
	Watches: []controller.Watch{controller.Mapped(api.ClusterRoles, func(k *controller.Kit, _ *rbacv1.ClusterRole) []string {
		var keys []string
		for _, role := range controller.For(k, api.ClusterRoles).List("", nil) {
			if role.AggregationRule != nil {
				keys = append(keys, role.Name)
			}
		}
		return keys
	})},
	Writes: []controller.Permission{controller.Update(api.ClusterRoles.Def)},
	// It hands out rules that it does not have itself.
	Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, Verbs: []string{"escalate"},
	}},
	Workers: 1, // there is little to do
	Setup: func(k *controller.Kit) controller.Reconciler[*rbacv1.ClusterRole] {
		return &reconciler{controller.For(k, api.ClusterRoles)}
	},
})

type reconciler struct {
	roles controller.Client[*rbacv1.ClusterRole]
}

// Reconcile puts the rules of a role together.
func (r *reconciler) Reconcile(ctx context.Context, role *rbacv1.ClusterRole) (controller.Next, error) {
	if role.AggregationRule == nil {
		return controller.Done, nil
	}
	rules, err := rbac.Aggregate(role, r.roles.List("", nil))
	if err != nil {
		return controller.Done, err
	}
	if equality.Semantic.DeepEqual(rules, role.Rules) {
		return controller.Done, nil
	}
	role = role.DeepCopy()
	role.Rules = rules
	_, err = r.roles.Update(ctx, role)
	return controller.Done, err
}
