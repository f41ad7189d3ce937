package bootstrap

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Policy is roles with their bindings.
type Policy struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
}

// Default is the policy that every cluster begins with.
func Default() Policy {
	return Policy{
		ClusterRoles:        append(userRoles(), systemRoles()...),
		ClusterRoleBindings: clusterBindings(),
		Roles:               namespacedRoles(),
		RoleBindings:        namespacedBindings(),
	}
}

// Join adds another policy. What both have a cluster role for has the rules of both, and the
// binding of p.
func (p Policy) Join(q Policy) Policy {
	roles := slices.Clone(p.ClusterRoles)
	for _, role := range q.ClusterRoles {
		if i := slices.IndexFunc(roles, func(r *rbacv1.ClusterRole) bool { return r.Name == role.Name }); i >= 0 {
			roles[i] = clusterRole(role.Name, slices.Concat(roles[i].Rules, role.Rules)...)
		} else {
			roles = append(roles, role)
		}
	}
	bindings := slices.Clone(p.ClusterRoleBindings)
	for _, b := range q.ClusterRoleBindings {
		if !slices.ContainsFunc(bindings, func(o *rbacv1.ClusterRoleBinding) bool { return o.Name == b.Name }) {
			bindings = append(bindings, b)
		}
	}
	return Policy{
		ClusterRoles:        roles,
		ClusterRoleBindings: bindings,
		Roles:               append(p.Roles, q.Roles...),
		RoleBindings:        append(p.RoleBindings, q.RoleBindings...),
	}
}

// Verbs in sets, as the roles use them.
const (
	read      = "get,list,watch"
	write     = "create,delete,deletecollection,patch,update"
	readWrite = read + "," + write
)

// rule makes a rule of comma-separated lists; "" is the core group.
func rule(verbs, groups, resources string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		Verbs: strings.Split(verbs, ","), APIGroups: strings.Split(groups, ","), Resources: strings.Split(resources, ","),
	}
}

// named is a rule for single objects.
func named(verbs, groups, resources, names string) rbacv1.PolicyRule {
	r := rule(verbs, groups, resources)
	r.ResourceNames = strings.Split(names, ",")
	return r
}

// paths is a rule for URLs that are no resources.
func paths(verbs string, urls ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), NonResourceURLs: urls}
}

// events lets a part of the system tell what happens.
func events() rbacv1.PolicyRule { return rule("create,patch,update", ",events.k8s.io", "events") }

// AutoUpdate is the annotation of what Reconcile keeps up.
const AutoUpdate = "rbac.authorization.kubernetes.io/autoupdate"

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{AutoUpdate: "true"},
	}
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: meta("", name), Rules: rules}
}

func role(namespace, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: meta(namespace, name), Rules: rules}
}

// Cluster binds a cluster role to subjects, in a binding of its name.
func Cluster(name string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta("", name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   subjects,
	}
}

func bind(namespace, name, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: meta(namespace, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   subjects,
	}
}

// User is a user as a subject.
func User(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

// Group is a group as a subject.
func Group(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

// Account is a service account as a subject.
func Account(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}
