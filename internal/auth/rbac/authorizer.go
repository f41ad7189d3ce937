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
		index   *index
		cursors []*cache.Cursor // of the caches in the order of Caches.list; nil: start anew
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
	for range 2 {
		if a.mu.cursors == nil {
			if err := a.startLocked(); err != nil {
				return err
			}
		}
		if a.drainLocked() {
			return nil
		}
		a.stopLocked() // fell behind the caches' logs: read all again
	}
	return errNotSynced
}

func (a *Authorizer) freshLocked() bool {
	if a.mu.cursors == nil {
		return false
	}
	for _, cu := range a.mu.cursors {
		if len(cu.Ready()) > 0 {
			return false
		}
	}
	return true
}

func (a *Authorizer) startLocked() error {
	a.mu.index = newIndex()
	for _, c := range a.caches.list() {
		select {
		case <-c.Synced():
		default:
			a.stopLocked()
			return errNotSynced
		}
		cu, err := c.Cursor(cache.CursorOptions{FromNow: true})
		if err != nil {
			a.stopLocked()
			return fmt.Errorf("read %s: %w", c.Def, err)
		}
		a.mu.cursors = append(a.mu.cursors, cu)
	}
	return nil
}

func (a *Authorizer) stopLocked() {
	for _, cu := range a.mu.cursors {
		cu.Close()
	}
	a.mu.cursors = nil
}

// drainLocked takes in what the cursors have; false if one has lost its place.
func (a *Authorizer) drainLocked() bool {
	for _, cu := range a.mu.cursors {
		for len(cu.Ready()) > 0 {
			<-cu.Ready()
			events, err := cu.Next()
			if err != nil {
				return false
			}
			for i := range events {
				a.mu.index.take(&events[i])
			}
		}
	}
	return true
}

// take puts one change of a cache into the index.
func (x *index) take(e *cache.Event) {
	gone := e.Type == cache.Deleted
	switch obj := e.Item.Object.(type) {
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
