package bootstrap

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	api "github.com/kemudi/kemudi/internal/api/rbac"
	"github.com/kemudi/kemudi/internal/auth/rbac"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/trace"
)

// cluster is objects by kind and key, with a note of each write.
type cluster struct {
	mu     sync.Mutex
	objs   map[string]resource.Object
	writes []string
}

var _ client.Transport = (*cluster)(nil)

func newCluster() *cluster { return &cluster{objs: map[string]resource.Object{}} }

func keyOf(def *resource.Def, namespace, name string) string {
	return def.Plural + " " + cache.Key(namespace, name)
}

func (c *cluster) Do(_ context.Context, r *client.Request) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := keyOf(r.Def, r.Namespace, r.Name)
	c.writes = append(c.writes, r.Verb+" "+key)
	if r.Verb == "delete" {
		delete(c.objs, key)
		return nil, nil
	}
	obj := r.Object.(resource.Object)
	if _, ok := c.objs[key]; ok == (r.Verb == "create") {
		return nil, apierrors.NewConflict(r.Def.GroupResource(), r.Name, nil)
	}
	errs := resource.NewErrors()
	r.Def.Default(obj)
	if r.Def.Validate(obj, c.objs[key], errs); errs.Len() > 0 {
		return nil, apierrors.NewInvalid(r.Def.GVK().GroupKind(), r.Name, errs.List())
	}
	c.objs[key] = obj
	return obj, nil
}

func (c *cluster) List(_ context.Context, r *client.Request) (client.List, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var l client.List
	for _, key := range slices.Sorted(maps.Keys(c.objs)) {
		if strings.HasPrefix(key, r.Def.Plural+" ") {
			l.Items = append(l.Items, c.objs[key])
		}
	}
	return l, nil
}

func (c *cluster) Cache(*resource.Def, string) *cache.Cache { return nil }

func (c *cluster) Hold(*resource.Def, string) (*cache.Cache, func()) { return nil, func() {} }

func (c *cluster) reconcile(t *testing.T) []string {
	t.Helper()
	c.writes = nil
	if err := Reconcile(t.Context(), c, Default()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(c.writes)
	return c.writes
}

func (c *cluster) clusterRole(name string) *rbacv1.ClusterRole {
	role, _ := c.objs[keyOf(api.ClusterRoles.Def, "", name)].(*rbacv1.ClusterRole)
	return role
}

func TestReconcileMakesEverythingOnce(t *testing.T) {
	c := newCluster()
	p := Default()
	if got, want := len(c.reconcile(t)), len(p.ClusterRoles)+len(p.ClusterRoleBindings)+len(p.Roles)+len(p.RoleBindings); got != want {
		t.Errorf("first time: got %d writes, want %d", got, want)
	}
	if again := c.reconcile(t); len(again) != 0 {
		t.Errorf("second time: got writes %v, want none", again)
	}
	for _, b := range p.ClusterRoleBindings {
		if c.clusterRole(b.RoleRef.Name) == nil {
			t.Errorf("binding %s refers to role %s, which there is not", b.Name, b.RoleRef.Name)
		}
	}
	for _, b := range p.RoleBindings {
		if c.objs[keyOf(api.Roles.Def, b.Namespace, b.RoleRef.Name)] == nil {
			t.Errorf("binding %s/%s refers to role %s, which there is not", b.Namespace, b.Name, b.RoleRef.Name)
		}
	}
}

func TestReconcileMendsWhatWasTakenAway(t *testing.T) {
	c := newCluster()
	c.reconcile(t)
	change := func(name string, f func(r *rbacv1.ClusterRole)) {
		r := c.clusterRole(name).DeepCopy()
		f(r)
		c.objs[keyOf(api.ClusterRoles.Def, "", name)] = r
	}
	change("system:discovery", func(r *rbacv1.ClusterRole) {
		r.Rules[0].NonResourceURLs = r.Rules[0].NonResourceURLs[2:]
		r.Rules = append(r.Rules, paths("get", "/extra"))
	})
	change("system:basic-user", func(r *rbacv1.ClusterRole) {
		r.Rules = nil
		r.Annotations[AutoUpdate] = "false"
	})
	change("view", func(r *rbacv1.ClusterRole) {
		r.Rules = append(r.Rules, rule("get", "example.com", "things")) // as the controller does
		delete(r.Labels, toEdit)
	})
	bindingKey := keyOf(api.ClusterRoleBindings.Def, "", "system:public-info-viewer")
	b := c.objs[bindingKey].(*rbacv1.ClusterRoleBinding).DeepCopy()
	b.Subjects = []rbacv1.Subject{User("mine")}
	c.objs[bindingKey] = b
	moved := keyOf(api.RoleBindings.Def, kubePublic, "kemudi:public-reader")
	rb := c.objs[moved].(*rbacv1.RoleBinding).DeepCopy()
	rb.RoleRef.Name = "other"
	c.objs[moved] = rb

	want := []string{
		"create rolebindings kube-public/kemudi:public-reader", "delete rolebindings kube-public/kemudi:public-reader",
		"update clusterrolebindings system:public-info-viewer", "update clusterroles system:discovery", "update clusterroles view",
	}
	if got := c.reconcile(t); !slices.Equal(got, want) {
		t.Errorf("writes: got %q, want %q", got, want)
	}
	for _, path := range []string{"/livez", "/readyz", "/extra", "/apis"} {
		if !rbac.Allows(c.clusterRole("system:discovery").Rules, authorizer.AttributesRecord{Verb: "get", Path: path}) {
			t.Errorf("system:discovery does not allow %s", path)
		}
	}
	if len(c.clusterRole("system:basic-user").Rules) != 0 {
		t.Error("a role that is not to be updated was")
	}
	if r := c.clusterRole("view"); r.Labels[toEdit] != "true" || !slices.ContainsFunc(r.Rules, func(r rbacv1.PolicyRule) bool { return r.Resources[0] == "things" }) {
		t.Error("view has lost its label, or what the controller added")
	}
	if s := c.objs[bindingKey].(*rbacv1.ClusterRoleBinding).Subjects; len(s) != 3 {
		t.Errorf("subjects: got %v, want all three", s)
	}
	if again := c.reconcile(t); len(again) != 0 {
		t.Errorf("second time: got writes %v, want none", again)
	}
}

func TestPoliciesThatShareARoleAreOne(t *testing.T) {
	one := Policy{ClusterRoles: []*rbacv1.ClusterRole{clusterRole("a", rule("get", "", "pods"))}, ClusterRoleBindings: []*rbacv1.ClusterRoleBinding{Cluster("a", User("u"))}}
	two := Policy{ClusterRoles: []*rbacv1.ClusterRole{clusterRole("a", rule("list", "", "pods")), clusterRole("b")}, ClusterRoleBindings: []*rbacv1.ClusterRoleBinding{Cluster("a", User("u")), Cluster("b")}}
	both := one.Join(two)
	if len(both.ClusterRoles) != 2 || len(both.ClusterRoles[0].Rules) != 2 || len(both.ClusterRoleBindings) != 2 || len(one.ClusterRoles[0].Rules) != 1 {
		t.Errorf("got roles %v and bindings %v, want a of both, b, and a binding of each; and one as it was: %v", both.ClusterRoles, both.ClusterRoleBindings, one.ClusterRoles)
	}
}

func TestDefaultRolesAllowWhatPeopleExpect(t *testing.T) {
	trace.Proves(t, "NS-013")
	c := newCluster()
	c.reconcile(t)
	may := func(role, question string) bool {
		f := strings.Fields(question)
		res, sub, _ := strings.Cut(f[1], "/")
		a := authorizer.AttributesRecord{Verb: f[0], Subresource: sub, ResourceRequest: true}
		a.Resource, a.APIGroup, _ = strings.Cut(res, ".")
		if ns, name, ok := strings.Cut(role, "/"); ok {
			return rbac.Allows(c.objs[keyOf(api.Roles.Def, ns, name)].(*rbacv1.Role).Rules, a)
		}
		return rbac.Allows(c.clusterRole(role).Rules, a)
	}
	for _, q := range []struct{ question, roles string }{
		{"get pods", "cluster-admin admin edit view"},
		{"get pods/log", "cluster-admin admin edit view"},
		{"list deployments.apps", "cluster-admin admin edit view"},
		{"list deployments.extensions", "cluster-admin admin edit view"},
		{"get secrets", "cluster-admin admin edit"},
		{"create pods/exec", "cluster-admin admin edit"},
		{"delete configmaps", "cluster-admin admin edit"},
		{"update deployments.apps/scale", "cluster-admin admin edit"},
		{"create serviceaccounts/token", "cluster-admin admin edit"},
		{"create rolebindings.rbac.authorization.k8s.io", "cluster-admin admin"},
		{"create localsubjectaccessreviews.authorization.k8s.io", "cluster-admin admin"},
		{"create resourcequotas", "cluster-admin"},
		{"delete nodes", "cluster-admin"},
		{"create things.example.com", "cluster-admin"},
	} {
		var got []string
		for _, role := range []string{"cluster-admin", "admin", "edit", "view"} {
			if may(role, q.question) {
				got = append(got, role)
			}
		}
		if strings.Join(got, " ") != q.roles {
			t.Errorf("%s: allowed by %v, want %s", q.question, got, q.roles)
		}
	}
	for role, does := range map[string][]string{
		"system:controller:service-controller": {"watch services", "patch services/status", "list nodes", "create events"},
		"system:controller:route-controller":   {"watch nodes", "patch nodes/status", "patch events"},
	} {
		for _, question := range does {
			if !may(role, question) {
				t.Errorf("managers of clouds: %s may not %s", role, question)
			}
		}
	}
	if !may("kube-public/kemudi:public-reader", "list configmaps") || may("kube-public/kemudi:public-reader", "get secrets") {
		t.Error("kube-public is not readable for all, or its secrets are")
	}
	subjects := c.objs[keyOf(api.RoleBindings.Def, "kube-public", "kemudi:public-reader")].(*rbacv1.RoleBinding).Subjects
	if got := fmt.Sprint(subjects); !strings.Contains(got, "system:unauthenticated") {
		t.Errorf("readers of kube-public: got %s", got)
	}
}
