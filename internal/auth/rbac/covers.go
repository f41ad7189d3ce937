package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Covers reports whether all that the rules in asked allow is allowed by held
// too, and returns the single permissions that are not.
func Covers(held, asked []rbacv1.PolicyRule) (bool, []rbacv1.PolicyRule) {
	var missing []rbacv1.PolicyRule
	for i := range asked {
		for one := range single(&asked[i]) {
			if !slices.ContainsFunc(held, func(h rbacv1.PolicyRule) bool { return covers(&h, &one) }) {
				missing = append(missing, one)
			}
		}
	}
	return len(missing) == 0, missing
}

// single yields the rule's permissions one by one: one verb, group, resource
// and name, or one verb and path.
func single(r *rbacv1.PolicyRule) func(yield func(rbacv1.PolicyRule) bool) {
	return func(yield func(rbacv1.PolicyRule) bool) {
		for _, verb := range r.Verbs {
			for _, path := range r.NonResourceURLs {
				if !yield(rbacv1.PolicyRule{Verbs: []string{verb}, NonResourceURLs: []string{path}}) {
					return
				}
			}
			for one := range singleResources(r, verb) {
				if !yield(one) {
					return
				}
			}
		}
	}
}

func singleResources(r *rbacv1.PolicyRule, verb string) func(yield func(rbacv1.PolicyRule) bool) {
	return func(yield func(rbacv1.PolicyRule) bool) {
		names := [][]string{nil}
		if len(r.ResourceNames) > 0 {
			names = nil
			for _, n := range r.ResourceNames {
				names = append(names, []string{n})
			}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, name := range names {
					one := rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: name}
					if !yield(one) {
						return
					}
				}
			}
		}
	}
}

// covers reports whether held allows the single permission one.
func covers(held, one *rbacv1.PolicyRule) bool {
	if !hasOrAll(held.Verbs, one.Verbs[0]) {
		return false
	}
	if len(one.NonResourceURLs) > 0 {
		return coversPath(held.NonResourceURLs, one.NonResourceURLs[0])
	}
	if !hasOrAll(held.APIGroups, one.APIGroups[0]) || !coversResource(held.Resources, one.Resources[0]) {
		return false
	}
	if len(held.ResourceNames) == 0 {
		return true
	}
	return len(one.ResourceNames) > 0 && slices.Contains(held.ResourceNames, one.ResourceNames[0])
}

func coversResource(held []string, one string) bool {
	if hasOrAll(held, one) {
		return true
	}
	_, sub, ok := strings.Cut(one, "/")
	return ok && slices.Contains(held, "*/"+sub)
}

func coversPath(held []string, one string) bool {
	for _, h := range held {
		if h == one {
			return true
		}
		if start, ok := strings.CutSuffix(h, "*"); ok && strings.HasPrefix(one, start) {
			return true
		}
	}
	return false
}

// Compact joins single permissions that differ in their verbs only, as errors
// show them.
func Compact(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, r := range rules {
		same := func(o rbacv1.PolicyRule) bool {
			return slices.Equal(o.APIGroups, r.APIGroups) && slices.Equal(o.Resources, r.Resources) &&
				slices.Equal(o.ResourceNames, r.ResourceNames) && slices.Equal(o.NonResourceURLs, r.NonResourceURLs)
		}
		if i := slices.IndexFunc(out, same); i >= 0 {
			if !slices.Contains(out[i].Verbs, r.Verbs[0]) {
				out[i].Verbs = append(out[i].Verbs, r.Verbs...)
			}
			continue
		}
		r.Verbs = slices.Clone(r.Verbs)
		out = append(out, r)
	}
	return out
}

// short writes a rule as upstream's errors do: {APIGroups:["apps"],
// Resources:["deployments"], Verbs:["get" "list"]}.
func short(r *rbacv1.PolicyRule) string {
	var parts []string
	add := func(name string, list []string) {
		if len(list) > 0 {
			parts = append(parts, name+":["+quoted(list)+"]")
		}
	}
	add("APIGroups", r.APIGroups)
	add("Resources", r.Resources)
	add("NonResourceURLs", r.NonResourceURLs)
	add("ResourceNames", r.ResourceNames)
	add("Verbs", r.Verbs)
	return "{" + strings.Join(parts, ", ") + "}"
}
