package rbac

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/resource"
)

// Escalation refuses writes of roles and bindings by which a user would grant
// more than they have. Ask is the whole chain of authorizers.
type Escalation struct {
	Rules *Authorizer
	Ask   authorizer.UnconditionalAuthorizer
}

// everything is what a role with an aggregation rule may come to allow.
var everything = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// Check refuses, by an API error, that the user writes obj in place of old
// (nil: creates it). Objects of other kinds are none of its business.
func (e *Escalation) Check(ctx context.Context, u user.Info, obj, old resource.Object) error {
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	kind, err := "", error(nil)
	switch obj := obj.(type) {
	case *rbacv1.Role:
		before, _ := old.(*rbacv1.Role)
		kind, err = "roles", e.role(ctx, u, obj, before)
	case *rbacv1.ClusterRole:
		before, _ := old.(*rbacv1.ClusterRole)
		kind, err = "clusterroles", e.clusterRole(ctx, u, obj, before)
	case *rbacv1.RoleBinding:
		before, _ := old.(*rbacv1.RoleBinding)
		if before != nil && before.RoleRef == obj.RoleRef && slices.Equal(before.Subjects, obj.Subjects) {
			return nil
		}
		kind, err = "rolebindings", e.bind(ctx, u, obj.Namespace, obj.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		before, _ := old.(*rbacv1.ClusterRoleBinding)
		if before != nil && before.RoleRef == obj.RoleRef && slices.Equal(before.Subjects, obj.Subjects) {
			return nil
		}
		kind, err = "clusterrolebindings", e.bind(ctx, u, "", obj.RoleRef)
	}
	if err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return err
	}
	return apierrors.NewForbidden(rbacv1.Resource(kind), obj.GetName(), err)
}

func (e *Escalation) role(ctx context.Context, u user.Info, obj, before *rbacv1.Role) error {
	if before != nil && reflect.DeepEqual(before.Rules, obj.Rules) {
		return nil
	}
	return e.grant(ctx, u, request{verb: "escalate", resource: "roles", namespace: obj.Namespace, name: obj.Name}, obj.Rules)
}

func (e *Escalation) clusterRole(ctx context.Context, u user.Info, obj, before *rbacv1.ClusterRole) error {
	if before != nil && reflect.DeepEqual(before.Rules, obj.Rules) && reflect.DeepEqual(before.AggregationRule, obj.AggregationRule) {
		return nil
	}
	may := request{verb: "escalate", resource: "clusterroles", name: obj.Name}
	if err := e.grant(ctx, u, may, obj.Rules); err != nil {
		return err
	}
	aggregates := obj.AggregationRule != nil || before != nil && before.AggregationRule != nil
	if aggregates && e.grant(ctx, u, may, everything) != nil {
		return errors.New("must have cluster-admin privileges to use the aggregationRule")
	}
	return nil
}

// bind checks that the user may give a role to others.
func (e *Escalation) bind(ctx context.Context, u user.Info, namespace string, ref rbacv1.RoleRef) error {
	may := request{verb: "bind", resource: "clusterroles", namespace: namespace, name: ref.Name}
	key := roleKey{name: ref.Name}
	if ref.Kind == "Role" {
		may.resource, key.namespace = "roles", namespace
	}
	if e.allowed(ctx, u, may) {
		return nil
	}
	if err := e.Rules.refresh(); err != nil {
		return err
	}
	rules, ok := e.Rules.role(key)
	if !ok { // nobody can tell what it would grant
		return apierrors.NewNotFound(rbacv1.Resource(may.resource), ref.Name)
	}
	return e.covered(u, namespace, rules)
}

// request is the permission by which a user may grant what they do not have.
type request struct{ verb, resource, namespace, name string }

func (e *Escalation) allowed(ctx context.Context, u user.Info, r request) bool {
	decision, _, err := e.Ask.Authorize(ctx, &authorizer.AttributesRecord{
		User: u, Verb: r.verb, Namespace: r.namespace, Name: r.name,
		APIGroup: rbacv1.GroupName, APIVersion: "*", Resource: r.resource, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

func (e *Escalation) grant(ctx context.Context, u user.Info, may request, rules []rbacv1.PolicyRule) error {
	if e.allowed(ctx, u, may) {
		return nil
	}
	return e.covered(u, may.namespace, rules)
}

// covered says which of the rules the user does not have themselves.
func (e *Escalation) covered(u user.Info, namespace string, rules []rbacv1.PolicyRule) error {
	held, err := e.Rules.Rules(u, namespace)
	ok, missing := Covers(held, rules)
	if ok {
		return nil
	}
	var lines []string
	for _, r := range Compact(missing) {
		lines = append(lines, short(&r))
	}
	slices.Sort(lines)
	unresolved := ""
	if err != nil {
		unresolved = fmt.Sprintf("; resolution errors: [%v]", err)
	}
	return fmt.Errorf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s%s",
		u.GetName(), u.GetGroups(), strings.Join(lines, "\n"), unresolved)
}
