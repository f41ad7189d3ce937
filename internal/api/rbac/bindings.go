package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// defaultBinding names the API group of what a binding refers to.
func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		if s := &subjects[i]; s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

// validateBinding checks what RoleBindings and ClusterRoleBindings share. Only a
// RoleBinding (namespaced) may refer to a Role.
func validateBinding(ref rbacv1.RoleRef, subjects []rbacv1.Subject, namespaced bool, errs *resource.Errors) {
	if ref.APIGroup != rbacv1.GroupName {
		resource.NotSupported(errs, "roleRef.apiGroup", ref.APIGroup, rbacv1.GroupName)
	}
	switch {
	case namespaced && ref.Kind != "Role" && ref.Kind != "ClusterRole":
		resource.NotSupported(errs, "roleRef.kind", ref.Kind, "Role", "ClusterRole")
	case !namespaced && ref.Kind != "ClusterRole":
		resource.NotSupported(errs, "roleRef.kind", ref.Kind, "ClusterRole")
	}
	if ref.Name == "" {
		errs.Required("roleRef.name", "")
	} else {
		errs.Refuse("roleRef.name", ref.Name, resource.PathSegment(ref.Name, false))
	}
	for i := range subjects {
		validateSubject(&subjects[i], namespaced, errs.At("subjects[%d]", i))
	}
}

func validateSubject(s *rbacv1.Subject, namespaced bool, errs *resource.Errors) {
	if s.Name == "" {
		errs.Required("name", "")
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			errs.Refuse("name", s.Name, resource.DNS1123Subdomain(s.Name, false))
		}
		if s.APIGroup != "" {
			resource.NotSupported(errs, "apiGroup", s.APIGroup, "")
		}
		if !namespaced && s.Namespace == "" {
			errs.Required("namespace", "")
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		if s.APIGroup != rbacv1.GroupName {
			resource.NotSupported(errs, "apiGroup", s.APIGroup, rbacv1.GroupName)
		}
	default:
		resource.NotSupported(errs, "kind", s.Kind, rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind)
	}
}

// bindingColumns are those of both kinds of binding.
func bindingColumns[T resource.Object](parts func(T) (rbacv1.RoleRef, []rbacv1.Subject)) []resource.Column[T] {
	names := func(kind string) func(T) any {
		return func(obj T) any {
			_, subjects := parts(obj)
			return strings.Join(subjectNames(subjects, kind), ", ")
		}
	}
	return []resource.Column[T]{
		{Name: "Role", Description: rbacv1beta1.RoleBinding{}.SwaggerDoc()["roleRef"], Value: func(obj T) any {
			ref, _ := parts(obj)
			return ref.Kind + "/" + ref.Name
		}},
		{Name: "Users", Priority: 1, Description: "Users in the roleBinding", Value: names(rbacv1.UserKind)},
		{Name: "Groups", Priority: 1, Description: "Groups in the roleBinding", Value: names(rbacv1.GroupKind)},
		{Name: "ServiceAccounts", Priority: 1, Description: "ServiceAccounts in the roleBinding", Value: names(rbacv1.ServiceAccountKind)},
	}
}

func subjectNames(subjects []rbacv1.Subject, kind string) []string {
	var names []string
	for _, s := range subjects {
		switch {
		case s.Kind != kind:
		case kind == rbacv1.ServiceAccountKind && s.Namespace != "":
			names = append(names, s.Namespace+"/"+s.Name)
		default:
			names = append(names, s.Name)
		}
	}
	return names
}
