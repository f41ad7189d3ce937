package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/cache"
)

// Caches are those of the kinds that decide.
type Caches struct {
	Roles, ClusterRoles, RoleBindings, ClusterRoleBindings *cache.Cache
}

// Authorizer decides by the roles and bindings in the caches. It may be used
// concurrently. It runs nothing: a decision takes in first what has changed.
type Authorizer struct {
	caches Caches

	mu struct {
		sync.RWMutex
		index     *index
		followers []*cache.Follower // of all caches; nil: not begun yet
	}
}

var (
	_ authorizer.UnconditionalAuthorizer = (*Authorizer)(nil)
	_ authorizer.RuleResolver            = (*Authorizer)(nil)
)

// New returns an authorizer over the caches. Until they are synced it allows nothing.
func New(c Caches) *Authorizer { return &Authorizer{caches: c} }

func (c *Caches) list() []*cache.Cache {
	return []*cache.Cache{c.Roles, c.ClusterRoles, c.RoleBindings, c.ClusterRoleBindings}
}

var errNotSynced = errors.New("the roles and bindings have not been read yet")

// Authorize decides about one request.
func (a *Authorizer) Authorize(_ context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	if err := a.refresh(); err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	reason, ok := a.mu.index.allowedBy(attrs)
	if ok {
		return authorizer.DecisionAllow, reason, nil
	}
	return authorizer.DecisionNoOpinion, a.mu.index.missingRoles(attrs.GetUser(), attrs.GetNamespace()), nil
}

// allowedBy is why the request is allowed.
func (x *index) allowedBy(attrs authorizer.Attributes) (reason string, ok bool) {
	x.visit(attrs.GetUser(), attrs.GetNamespace(), func(g *grant) bool {
		if Allows(g.role.rules, attrs) {
			reason, ok = g.reason, true
		}
		return !ok
	})
	return reason, ok
}

// missingRoles says which roles the user is bound to that do not exist: that
// may be why a request was not allowed.
func (x *index) missingRoles(u user.Info, namespace string) string {
	var missing []string
	x.visit(u, namespace, func(g *grant) bool {
		if !g.role.exists {
			missing = append(missing, g.role.notFound())
		}
		return true
	})
	switch missing = unique(missing); len(missing) {
	case 0:
		return ""
	case 1:
		return "RBAC: " + missing[0]
	}
	return "RBAC: [" + strings.Join(missing, ", ") + "]"
}

func (s *slot) notFound() string {
	if s.key.namespace == "" {
		return fmt.Sprintf("clusterrole.rbac.authorization.k8s.io %q not found", s.key.name)
	}
	return fmt.Sprintf("role.rbac.authorization.k8s.io %q not found", s.key.name)
}

// Rules are all rules that the user has in a namespace (empty: in the whole
// cluster), and why they may not be all.
func (a *Authorizer) Rules(u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	if err := a.refresh(); err != nil {
		return nil, err
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	var rules []rbacv1.PolicyRule
	var errs []error
	a.mu.index.visit(u, namespace, func(g *grant) bool {
		rules = append(rules, g.role.rules...)
		if !g.role.exists {
			errs = append(errs, errors.New(g.role.notFound()))
		}
		return true
	})
	return rules, errors.Join(errs...)
}

// RulesFor lists what the user may do in a namespace, for reviews of one's own rules.
func (a *Authorizer) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	rules, err := a.Rules(u, namespace)
	var resources []authorizer.ResourceRuleInfo
	var paths []authorizer.NonResourceRuleInfo
	for _, r := range rules {
		if len(r.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
			})
		}
		if len(r.NonResourceURLs) > 0 {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
		}
	}
	return resources, paths, err != nil, err
}

// role returns the rules of a role; ok is false if it does not exist.
func (a *Authorizer) role(key roleKey) (rules []rbacv1.PolicyRule, ok bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if s := a.mu.index.roles[key]; s != nil && s.exists {
		return s.rules, true
	}
	return nil, false
}

// refresh takes in what has changed in the caches (R1).
func (a *Authorizer) refresh() error {
	a.mu.RLock()
	fresh := a.freshLocked()
	a.mu.RUnlock()
	if fresh {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.followers == nil {
		if err := a.startLocked(); err != nil {
			return err
		}
	}
	a.drainLocked()
	return nil
}

func (a *Authorizer) freshLocked() bool {
	for _, f := range a.mu.followers {
		if len(f.Ready()) > 0 {
			return false
		}
	}
	return a.mu.followers != nil
}

func (a *Authorizer) startLocked() error {
	for _, c := range a.caches.list() {
		select {
		case <-c.Synced():
		default:
			return errNotSynced
		}
	}
	a.mu.index = newIndex()
	for _, c := range a.caches.list() {
		a.mu.followers = append(a.mu.followers, c.Follow(cache.FollowOptions{}))
	}
	return nil
}

func (a *Authorizer) drainLocked() {
	for _, f := range a.mu.followers {
		for len(f.Ready()) > 0 {
			<-f.Ready()
			for _, d := range f.Next() {
				a.mu.index.take(d)
			}
		}
	}
}

// take puts one change of a cache into the index.
func (x *index) take(d cache.Delta) {
	gone := d.Now == nil
	switch obj := d.Last().Object.(type) {
	case *rbacv1.Role:
		x.takeRole(roleKey{obj.Namespace, obj.Name}, obj.Rules, gone)
	case *rbacv1.ClusterRole:
		x.takeRole(roleKey{name: obj.Name}, obj.Rules, gone)
	case *rbacv1.RoleBinding:
		x.takeBinding(bindingKey{obj.Namespace, obj.Name}, obj.RoleRef, obj.Subjects, gone)
	case *rbacv1.ClusterRoleBinding:
		x.takeBinding(bindingKey{name: obj.Name}, obj.RoleRef, obj.Subjects, gone)
	}
}

func (x *index) takeRole(key roleKey, rules []rbacv1.PolicyRule, gone bool) {
	if gone {
		x.removeRole(key)
		return
	}
	x.setRole(key, rules)
}

func (x *index) takeBinding(key bindingKey, ref rbacv1.RoleRef, subjects []rbacv1.Subject, gone bool) {
	if gone {
		x.removeBinding(key)
		return
	}
	x.setBinding(key, ref, subjects)
}

func unique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

func quoted(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(out, " ")
}
