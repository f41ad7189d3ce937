package controller

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/resource"
)

// Role is the ClusterRole that the controller's declaration amounts to. Every
// controller may write events.
func (c *Controller) Role() *rbacv1.ClusterRole {
	verbs := map[schemaResource][]string{}
	add := func(def *resource.Def, sub string, vs ...string) {
		key := schemaResource{def.Group, def.Plural}
		if sub != "" {
			key.resource += "/" + sub
		}
		for _, v := range vs {
			if !slices.Contains(verbs[key], v) {
				verbs[key] = append(verbs[key], v)
			}
		}
	}
	for _, def := range c.Reads {
		add(def, "", "get", "list", "watch")
	}
	for _, g := range c.Writes {
		add(g.Def, g.Sub, g.Verb)
	}
	keys := make([]schemaResource, 0, len(verbs))
	for key := range verbs {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b schemaResource) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource))
	})
	role := &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: "system:controller:" + c.Name},
	}
	for _, key := range keys {
		slices.Sort(verbs[key])
		role.Rules = append(role.Rules, rbacv1.PolicyRule{
			APIGroups: []string{key.group}, Resources: []string{key.resource}, Verbs: verbs[key],
		})
	}
	role.Rules = append(role.Rules, rbacv1.PolicyRule{
		APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"},
	})
	role.Rules = append(role.Rules, c.Rules...)
	return role
}

type schemaResource struct{ group, resource string }
