package flow

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Request is what schemas look at.
type Request struct {
	User     user.Info
	Resource bool // it is of a resource, and not of a path alone
	Verb     string
	Group    string
	Plural   string
	Sub      string
	// Namespace is that of the object, empty for what is in none.
	Namespace     string
	Path          string
	Version, Name string // for people
}

// Flow is to whom a request counts. It holds until the configuration changes, and after.
type Flow struct {
	schema *schema
	hash   uint64 // of the schema and what tells its flows apart
}

// Exempt reports whether requests of the flow are not counted.
func (f Flow) Exempt() bool { return f.schema.level.exempt }

// Schema and Level are the UIDs of the FlowSchema and of its level, as the values of a header; nil: it is
// not stored. They are shared.
func (f Flow) Schema() []string { return f.schema.uid }

// Level is explained at Schema.
func (f Flow) Level() []string { return f.schema.levelUID }

// MostSeats is how many seats a request of the flow takes at most, however much it is.
func (f Flow) MostSeats() int { return f.schema.widest }

// ranking is all schemas, in the order in which they are tried.
type ranking struct {
	resources, paths []*schema // those that have rules for such requests
	rest             *schema   // of what matches none
}

// Classify returns the flow of a request (F1).
func (c *Control) Classify(r *Request) Flow {
	now := c.ranking.Load()
	list := now.paths
	if r.Resource {
		list = now.resources
	}
	for _, s := range list {
		if s.matches(r) {
			return c.flowOf(s, r)
		}
	}
	return c.flowOf(now.rest, r)
}

func (c *Control) flowOf(s *schema, r *Request) Flow {
	if s.by == "" {
		return Flow{s, s.seed}
	}
	return Flow{s, s.seed ^ maphash.String(c.seed, s.distinguisher(r))}
}

// distinguisher is what tells the flow of a request apart from others of the schema.
func (s *schema) distinguisher(r *Request) string {
	switch s.by {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return r.User.GetName()
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return r.Namespace
	}
	return ""
}

// schema is a FlowSchema, made ready for being asked.
type schema struct {
	name       string
	uid        []string
	precedence int32
	level      *level
	levelUID   []string
	widest     int // seats of one request
	by         flowcontrolv1.FlowDistinguisherMethodType
	seed       uint64
	rules      []rule
	*stats
}

// rule is one of its rules.
type rule struct {
	everybody bool
	users     []string
	groups    []string
	accounts  []flowcontrolv1.ServiceAccountSubject

	resources []flowcontrolv1.ResourcePolicyRule
	paths     []flowcontrolv1.NonResourcePolicyRule
}

func newRule(r *flowcontrolv1.PolicyRulesWithSubjects) rule {
	out := rule{resources: r.ResourceRules, paths: r.NonResourceRules}
	for _, s := range r.Subjects {
		switch {
		case s.User != nil && s.Kind == flowcontrolv1.SubjectKindUser:
			out.everybody = out.everybody || s.User.Name == flowcontrolv1.NameAll
			out.users = append(out.users, s.User.Name)
		case s.Group != nil && s.Kind == flowcontrolv1.SubjectKindGroup:
			out.everybody = out.everybody || s.Group.Name == flowcontrolv1.NameAll
			out.groups = append(out.groups, s.Group.Name)
		case s.ServiceAccount != nil && s.Kind == flowcontrolv1.SubjectKindServiceAccount:
			out.accounts = append(out.accounts, *s.ServiceAccount)
		}
	}
	return out
}

// byRank is the order in which schemas are tried.
func byRank(a, b *schema) int {
	return cmp.Or(cmp.Compare(a.precedence, b.precedence), strings.Compare(a.name, b.name))
}

func (s *schema) matches(r *Request) bool {
	for i := range s.rules {
		if rule := &s.rules[i]; rule.about(r) && rule.of(r.User) {
			return true
		}
	}
	return false
}

func (s *rule) of(u user.Info) bool {
	if s.everybody || slices.Contains(s.users, u.GetName()) {
		return true
	}
	for _, g := range u.GetGroups() {
		if slices.Contains(s.groups, g) {
			return true
		}
	}
	for i := range s.accounts {
		if a := &s.accounts[i]; a.Name != flowcontrolv1.NameAll {
			if serviceaccount.MatchesUsername(a.Namespace, a.Name, u.GetName()) {
				return true
			}
		} else if rest, ok := strings.CutPrefix(u.GetName(), serviceaccount.ServiceAccountUsernamePrefix); ok {
			if rest, ok = strings.CutPrefix(rest, a.Namespace); ok && strings.HasPrefix(rest, ":") {
				return true
			}
		}
	}
	return false
}

func (s *rule) about(r *Request) bool {
	if !r.Resource {
		return slices.ContainsFunc(s.paths, func(p flowcontrolv1.NonResourcePolicyRule) bool {
			return has(p.Verbs, r.Verb) && slices.ContainsFunc(p.NonResourceURLs, func(url string) bool { return covers(url, r.Path) })
		})
	}
	for i := range s.resources {
		p := &s.resources[i]
		if !has(p.Verbs, r.Verb) || !has(p.APIGroups, r.Group) || !hasResource(p.Resources, r.Plural, r.Sub) {
			continue
		}
		if r.Namespace == "" && p.ClusterScope || r.Namespace != "" && has(p.Namespaces, r.Namespace) {
			return true
		}
	}
	return false
}

// has reports whether a list has a value, or stands for all.
func has(list []string, value string) bool {
	return len(list) == 1 && list[0] == "*" || slices.Contains(list, value)
}

func hasResource(list []string, plural, sub string) bool {
	if sub == "" || len(list) == 1 && list[0] == "*" {
		return has(list, plural)
	}
	for _, name := range list {
		if rest, ok := strings.CutPrefix(name, plural); ok && len(rest) == len(sub)+1 && rest[0] == '/' && rest[1:] == sub {
			return true
		}
	}
	return false
}

// covers reports whether a rule for url is one for path: for what is below it, too.
func covers(url, path string) bool {
	if url == flowcontrolv1.NonResourceAll || url == path {
		return true
	}
	above := strings.TrimSuffix(strings.TrimSuffix(url, "*"), "/")
	return len(path) > len(above) && path[len(above)] == '/' && strings.HasPrefix(path, above)
}
