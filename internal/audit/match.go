package audit

import (
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// rule is what a policy says of a request.
type rule struct {
	level             auditv1.Level
	omit              []auditv1.Stage
	omitManagedFields bool
}

// tells reports whether events have what the level has.
func (r *rule) tells(level auditv1.Level) bool {
	return slices.Index(levels, r.level) >= slices.Index(levels, level)
}

// policy is a policy ready for use: rules[i] is what holds where its Rules[i] is the first
// that fits, and other where none does.
type policy struct {
	*auditv1.Policy
	rules []rule
	other rule
}

func newPolicy(p *auditv1.Policy) *policy {
	made := &policy{Policy: p, other: rule{auditv1.LevelNone, p.OmitStages, p.OmitManagedFields}}
	for i := range p.Rules {
		r := &p.Rules[i]
		one := rule{r.Level, slices.Concat(p.OmitStages, r.OmitStages), p.OmitManagedFields}
		if r.OmitManagedFields != nil {
			one.omitManagedFields = *r.OmitManagedFields
		}
		made.rules = append(made.rules, one)
	}
	return made
}

// of is what holds for a request.
func (p *policy) of(a authorizer.Attributes) *rule {
	for i := range p.Rules {
		if fits(&p.Rules[i], a) {
			return &p.rules[i]
		}
	}
	return &p.other
}

// fits reports whether a rule is about a request.
func fits(r *auditv1.PolicyRule, a authorizer.Attributes) bool {
	if !fitsUser(r, a) || len(r.Verbs) > 0 && !slices.Contains(r.Verbs, a.GetVerb()) {
		return false
	}
	switch {
	case len(r.Namespaces) > 0 || len(r.Resources) > 0:
		return a.IsResourceRequest() && fitsResource(r, a)
	case len(r.NonResourceURLs) > 0:
		return !a.IsResourceRequest() && slices.ContainsFunc(r.NonResourceURLs, func(url string) bool { return fitsPath(url, a.GetPath()) })
	}
	return true
}

func fitsUser(r *auditv1.PolicyRule, a authorizer.Attributes) bool {
	if len(r.Users) == 0 && len(r.UserGroups) == 0 {
		return true
	}
	u := a.GetUser()
	if u == nil {
		return false
	}
	if len(r.Users) > 0 && !slices.Contains(r.Users, u.GetName()) {
		return false
	}
	return len(r.UserGroups) == 0 || slices.ContainsFunc(u.GetGroups(), func(g string) bool { return slices.Contains(r.UserGroups, g) })
}

// fitsPath reports whether a path is what a rule names: all, itself, or what begins as
// that does before its last *.
func fitsPath(url, path string) bool {
	return url == "*" || url == path || strings.HasSuffix(url, "*") && strings.HasPrefix(path, strings.TrimRight(url, "*"))
}

func fitsResource(r *auditv1.PolicyRule, a authorizer.Attributes) bool {
	if len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, a.GetNamespace()) {
		return false
	}
	if len(r.Resources) == 0 {
		return true
	}
	for i := range r.Resources {
		gr := &r.Resources[i]
		switch {
		case gr.Group != "*" && gr.Group != a.GetAPIGroup():
		case len(gr.Resources) == 0:
			return true
		case len(gr.ResourceNames) > 0 && !slices.Contains(gr.ResourceNames, a.GetName()):
		case slices.ContainsFunc(gr.Resources, func(named string) bool { return fitsName(named, a.GetResource(), a.GetSubresource()) }):
			return true
		}
	}
	return false
}

// fitsName reports whether a resource, or the subresource of it if there is one, is what
// a rule names: *, pods, pods/log, pods/* or */log.
func fitsName(named, plural, sub string) bool {
	if named == "*" {
		return true
	}
	first, second, parts := strings.Cut(named, "/")
	if !parts {
		return named == plural && sub == ""
	}
	switch {
	case second == "*":
		return first == plural // the resource itself as well
	case sub == "" || second != sub:
		return false
	}
	return first == "*" || first == plural
}
