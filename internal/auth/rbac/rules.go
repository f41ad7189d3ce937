package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Allows reports whether one of the rules allows the request.
func Allows(rules []rbacv1.PolicyRule, a authorizer.Attributes) bool {
	for i := range rules {
		if allows(&rules[i], a) {
			return true
		}
	}
	return false
}

func allows(r *rbacv1.PolicyRule, a authorizer.Attributes) bool {
	if !hasOrAll(r.Verbs, a.GetVerb()) {
		return false
	}
	if !a.IsResourceRequest() {
		return matchesPath(r.NonResourceURLs, a.GetPath())
	}
	return hasOrAll(r.APIGroups, a.GetAPIGroup()) &&
		matchesResource(r.Resources, a.GetResource(), a.GetSubresource()) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.GetName()))
}

func hasOrAll(list []string, s string) bool {
	for _, x := range list {
		if x == "*" || x == s {
			return true
		}
	}
	return false
}

// matchesResource knows "pods", "pods/log", "*/scale" and "*".
func matchesResource(list []string, resource, sub string) bool {
	for _, x := range list {
		switch {
		case x == "*":
			return true
		case sub == "":
			if x == resource {
				return true
			}
		default:
			head, tail, ok := strings.Cut(x, "/")
			if ok && tail == sub && (head == "*" || head == resource) {
				return true
			}
		}
	}
	return false
}

// matchesPath knows whole paths, and beginnings that end in "*".
func matchesPath(list []string, path string) bool {
	for _, x := range list {
		if x == path {
			return true
		}
		if start, ok := strings.CutSuffix(x, "*"); ok && strings.HasPrefix(path, start) {
			return true
		}
	}
	return false
}
