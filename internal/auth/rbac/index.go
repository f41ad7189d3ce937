package rbac

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// index finds what is bound to a subject:
//
//	subject ─┬─ cluster-wide ──── grant, grant ...
//	         └─ by namespace ──── grant ...        grant ── role slot ── rules
//
// A role slot is there as soon as a binding names the role, with no rules
// until the role exists.
type index struct {
	roles    map[roleKey]*slot
	subjects map[subject]*granted
	bindings map[bindingKey]*bound
}

type roleKey struct{ namespace, name string } // namespace empty: a ClusterRole

type bindingKey struct{ namespace, name string } // namespace empty: a ClusterRoleBinding

// subject is a user or, with group set, a group. Service accounts are users.
type subject struct {
	name  string
	group bool
}

type slot struct {
	key    roleKey
	exists bool
	rules  []rbacv1.PolicyRule
	users  int // grants that refer to it
}

// grant is one subject's part of a binding.
type grant struct {
	role   *slot
	by     bindingKey
	reason string // R2
}

type granted struct {
	cluster    []*grant
	namespaces map[string][]*grant
}

// bound is what a binding has put into the index.
type bound struct {
	subjects []subject
	role     *slot
}

func newIndex() *index {
	return &index{roles: map[roleKey]*slot{}, subjects: map[subject]*granted{}, bindings: map[bindingKey]*bound{}}
}

func (x *index) slot(key roleKey) *slot {
	s := x.roles[key]
	if s == nil {
		s = &slot{key: key}
		x.roles[key] = s
	}
	return s
}

func (x *index) setRole(key roleKey, rules []rbacv1.PolicyRule) {
	s := x.slot(key)
	s.exists, s.rules = true, rules
}

func (x *index) removeRole(key roleKey) {
	s := x.slot(key)
	s.exists, s.rules = false, nil
	x.dropUnused(s)
}

func (x *index) dropUnused(s *slot) {
	if !s.exists && s.users == 0 {
		delete(x.roles, s.key)
	}
}

// setBinding puts a binding in place of the one that was there by its key.
func (x *index) setBinding(key bindingKey, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
	x.removeBinding(key)
	role := roleKey{name: ref.Name}
	if ref.Kind == "Role" {
		role.namespace = key.namespace
	}
	b := &bound{role: x.slot(role)}
	b.role.users++
	x.bindings[key] = b
	for i := range subjects {
		s, ok := subjectOf(&subjects[i], key.namespace)
		if !ok {
			continue
		}
		b.subjects = append(b.subjects, s)
		g := x.subjects[s]
		if g == nil {
			g = &granted{}
			x.subjects[s] = g
		}
		g.add(&grant{role: b.role, by: key, reason: reason(key, ref, &subjects[i])})
	}
}

func (x *index) removeBinding(key bindingKey) {
	b := x.bindings[key]
	if b == nil {
		return
	}
	delete(x.bindings, key)
	for _, s := range b.subjects {
		g := x.subjects[s]
		if g == nil {
			continue // named twice by the binding
		}
		g.remove(key)
		if len(g.cluster) == 0 && len(g.namespaces) == 0 {
			delete(x.subjects, s)
		}
	}
	b.role.users--
	x.dropUnused(b.role)
}

func (g *granted) add(one *grant) {
	if one.by.namespace == "" {
		g.cluster = append(g.cluster, one)
		return
	}
	if g.namespaces == nil {
		g.namespaces = map[string][]*grant{}
	}
	g.namespaces[one.by.namespace] = append(g.namespaces[one.by.namespace], one)
}

func (g *granted) remove(key bindingKey) {
	without := func(list []*grant) []*grant {
		var rest []*grant
		for _, one := range list {
			if one.by != key {
				rest = append(rest, one)
			}
		}
		return rest
	}
	if key.namespace == "" {
		g.cluster = without(g.cluster)
		return
	}
	if rest := without(g.namespaces[key.namespace]); len(rest) > 0 {
		g.namespaces[key.namespace] = rest
	} else {
		delete(g.namespaces, key.namespace)
	}
}

// subjectOf is whom a binding in the namespace means; ok is false if nobody.
func subjectOf(s *rbacv1.Subject, namespace string) (subject, bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return subject{name: s.Name}, true
	case rbacv1.GroupKind:
		return subject{name: s.Name, group: true}, true
	case rbacv1.ServiceAccountKind:
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		return subject{name: serviceaccount.MakeUsername(namespace, s.Name)}, namespace != ""
	}
	return subject{}, false
}

// reason says, in upstream's words, why a request is allowed.
func reason(key bindingKey, ref rbacv1.RoleRef, s *rbacv1.Subject) string {
	who := fmt.Sprintf("%s %q", s.Kind, s.Name)
	if s.Kind == rbacv1.ServiceAccountKind {
		namespace := s.Namespace
		if namespace == "" {
			namespace = key.namespace
		}
		who = fmt.Sprintf("%s %q", s.Kind, s.Name+"/"+namespace)
	}
	if key.namespace == "" {
		return fmt.Sprintf("RBAC: allowed by ClusterRoleBinding %q of %s %q to %s", key.name, ref.Kind, ref.Name, who)
	}
	return fmt.Sprintf("RBAC: allowed by RoleBinding %q of %s %q to %s", key.name+"/"+key.namespace, ref.Kind, ref.Name, who)
}

// visit calls fn with all that the user has in a namespace (empty: in the
// whole cluster), until fn returns false.
func (x *index) visit(u user.Info, namespace string, fn func(*grant) bool) {
	if !x.visitOne(subject{name: u.GetName()}, namespace, fn) {
		return
	}
	for _, g := range u.GetGroups() {
		if !x.visitOne(subject{name: g, group: true}, namespace, fn) {
			return
		}
	}
}

func (x *index) visitOne(s subject, namespace string, fn func(*grant) bool) bool {
	g := x.subjects[s]
	if g == nil {
		return true
	}
	for _, one := range g.cluster {
		if !fn(one) {
			return false
		}
	}
	if namespace == "" {
		return true
	}
	for _, one := range g.namespaces[namespace] {
		if !fn(one) {
			return false
		}
	}
	return true
}
