package rbac

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	rbac "github.com/kemudi/kemudi/internal/api/rbac"
	"github.com/kemudi/kemudi/internal/auth"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// world is caches that the tests feed themselves.
type world struct {
	caches Caches
	rev    int64
}

func newWorld(objs ...resource.Object) *world {
	p := &cache.Progress{}
	w := &world{rev: 10, caches: Caches{
		Roles: cache.New(rbac.Roles.Def, p), ClusterRoles: cache.New(rbac.ClusterRoles.Def, p),
		RoleBindings: cache.New(rbac.RoleBindings.Def, p), ClusterRoleBindings: cache.New(rbac.ClusterRoleBindings.Def, p),
	}}
	for _, c := range w.caches.list() {
		c.Replace(nil, w.rev)
	}
	for _, obj := range objs {
		w.set(obj)
	}
	return w
}

func (w *world) cacheOf(obj resource.Object) *cache.Cache {
	switch obj.(type) {
	case *rbacv1.Role:
		return w.caches.Roles
	case *rbacv1.ClusterRole:
		return w.caches.ClusterRoles
	case *rbacv1.RoleBinding:
		return w.caches.RoleBindings
	}
	return w.caches.ClusterRoleBindings
}

func (w *world) set(obj resource.Object) {
	w.rev++
	w.cacheOf(obj).Apply([]cache.Change{{Item: &cache.Item{Key: cache.Key(obj.GetNamespace(), obj.GetName()), Rev: w.rev, Object: obj}}})
}

func (w *world) remove(obj resource.Object) {
	w.rev++
	c := w.cacheOf(obj)
	c.Apply([]cache.Change{cache.Gone(c.Get(cache.Key(obj.GetNamespace(), obj.GetName())), w.rev)})
}

// rule reads "get,list pods,pods/log in apps for a,b" or "get /healthz*";
// groups are core if not named.
func rule(text string) rbacv1.PolicyRule {
	split := func(s string) []string { return strings.Split(s, ",") }
	var r rbacv1.PolicyRule
	fields := strings.Fields(text)
	r.Verbs = split(fields[0])
	if strings.HasPrefix(fields[1], "/") || fields[1] == "url:*" {
		r.NonResourceURLs = split(strings.TrimPrefix(fields[1], "url:"))
		return r
	}
	r.Resources, r.APIGroups = split(fields[1]), []string{""}
	for i := 2; i < len(fields); i += 2 {
		switch fields[i] {
		case "in":
			r.APIGroups = split(fields[i+1])
		case "for":
			r.ResourceNames = split(fields[i+1])
		}
	}
	return r
}

func rules(texts ...string) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, t := range texts {
		out = append(out, rule(t))
	}
	return out
}

func role(name string, texts ...string) resource.Object {
	ns, name, ok := strings.Cut(name, "/")
	if !ok {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: ns}, Rules: rules(texts...)}
	}
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Rules: rules(texts...)}
}

// binding binds "Kind/name" to "User x", "Group x" or "ServiceAccount ns/x".
func binding(name, ref string, subjects ...string) resource.Object {
	kind, roleName, _ := strings.Cut(ref, "/")
	roleRef := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: roleName}
	var list []rbacv1.Subject
	for _, s := range subjects {
		kind, who, _ := strings.Cut(s, " ")
		one := rbacv1.Subject{Kind: kind, Name: who}
		if ns, account, ok := strings.Cut(who, "/"); ok && kind == "ServiceAccount" {
			one.Namespace, one.Name = ns, account
		}
		list = append(list, one)
	}
	ns, name, ok := strings.Cut(name, "/")
	if !ok {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: ns}, RoleRef: roleRef, Subjects: list}
	}
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, RoleRef: roleRef, Subjects: list}
}

// ask reads "alice+devs get pods/log team/web", "alice get pods" or
// "alice get /healthz"; a group of the resource follows a dot.
func ask(text string) authorizer.AttributesRecord {
	f := strings.Fields(text)
	who := strings.Split(f[0], "+")
	a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: who[0], Groups: who[1:]}, Verb: f[1]}
	if strings.HasPrefix(f[2], "/") {
		a.Path = f[2]
		return a
	}
	a.ResourceRequest = true
	res, sub, _ := strings.Cut(f[2], "/")
	a.Subresource = sub
	a.Resource, a.APIGroup, _ = strings.Cut(res, ".")
	if len(f) > 3 {
		ns, name, ok := strings.Cut(f[3], "/")
		if !ok {
			ns, name = "", ns
		}
		a.Namespace, a.Name = ns, name
	}
	return a
}

func TestRulesAllowWhatTheySay(t *testing.T) {
	for _, c := range []struct {
		rule    string
		allows  []string
		refuses []string
	}{
		{"get,list pods", []string{"u get pods a/b", "u list pods a/"}, []string{"u watch pods a/b", "u get pods.apps a/b", "u get pods/log a/b", "u get secrets a/b"}},
		{"* * in *", []string{"u get pods a/b", "u delete x.y.z/w a/b"}, []string{"u get /healthz"}},
		{"get pods/log", []string{"u get pods/log a/b"}, []string{"u get pods a/b", "u get services/log a/b", "u get pods/exec a/b"}},
		{"update */scale in apps", []string{"u update deployments.apps/scale a/b"}, []string{"u update deployments.apps a/b", "u update pods/scale a/b", "u update deployments.apps/status a/b"}},
		{"* pods/* in *", nil, []string{"u get pods/log a/b", "u get pods a/b"}},
		{"get configmaps for x,y", []string{"u get configmaps a/x", "u get configmaps a/y"}, []string{"u get configmaps a/z", "u list configmaps a/"}},
		{"get /healthz,/api/*", []string{"u get /healthz", "u get /api/", "u get /api/v1"}, []string{"u get /healthz/etcd", "u get /apis", "u post /healthz", "u get /api"}},
		{"get url:*", []string{"u get /anything"}, []string{"u get pods a/b"}},
	} {
		r := rules(c.rule)
		for _, q := range c.allows {
			if !Allows(r, ask(q)) {
				t.Errorf("%s: refuses %s", c.rule, q)
			}
		}
		for _, q := range c.refuses {
			if Allows(r, ask(q)) {
				t.Errorf("%s: allows %s", c.rule, q)
			}
		}
	}
}

// decide is the reason for which a request is allowed, or "no: " and why not.
func decide(t *testing.T, a *Authorizer, question string) string {
	t.Helper()
	decision, reason, err := a.Authorize(t.Context(), ask(question))
	if err != nil {
		return "error: " + err.Error()
	}
	if decision == authorizer.DecisionAllow {
		return reason
	}
	return strings.TrimSuffix("no: "+reason, ": ")
}

func TestBindingsGrantTheirRoles(t *testing.T) {
	w := newWorld(
		role("view", "get,list pods"), role("nodes", "get nodes"), role("team/edit", "update pods"), role("other/edit", "delete pods"),
		binding("viewers", "ClusterRole/view", "Group devs", "User carol"),
		binding("team/view", "ClusterRole/view", "User alice", "ServiceAccount builder"),
		binding("team/edit", "Role/edit", "ServiceAccount ci/robot", "User alice"),
		binding("team/nodes", "ClusterRole/nodes", "User alice"),
		binding("team/gone", "Role/gone", "User bob"), binding("gone", "ClusterRole/gone", "User bob"),
	)
	a := New(w.caches)
	for question, want := range map[string]string{
		"dave+devs get pods any/x":                            `RBAC: allowed by ClusterRoleBinding "viewers" of ClusterRole "view" to Group "devs"`,
		"carol list pods":                                     `RBAC: allowed by ClusterRoleBinding "viewers" of ClusterRole "view" to User "carol"`,
		"dave list pods team/":                                "no",
		"alice get pods team/x":                               `RBAC: allowed by RoleBinding "view/team" of ClusterRole "view" to User "alice"`,
		"alice get pods other/x":                              "no",
		"alice get pods":                                      "no",
		"alice update pods team/x":                            `RBAC: allowed by RoleBinding "edit/team" of Role "edit" to User "alice"`,
		"alice delete pods team/x":                            "no",
		"alice get nodes n1":                                  "no",
		"system:serviceaccount:team:builder get pods team/x":  `RBAC: allowed by RoleBinding "view/team" of ClusterRole "view" to ServiceAccount "builder/team"`,
		"system:serviceaccount:ci:robot update pods team/x":   `RBAC: allowed by RoleBinding "edit/team" of Role "edit" to ServiceAccount "robot/ci"`,
		"system:serviceaccount:other:builder get pods team/x": "no",
		"bob get pods team/x":                                 `no: RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "gone" not found]`,
		"bob get pods other/x":                                `no: RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found`,
	} {
		if got := decide(t, a, question); got != want {
			t.Errorf("%s: got %s, want %s", question, got, want)
		}
	}
}

func TestDecisionsFollowChanges(t *testing.T) {
	w := newWorld()
	a := New(w.caches)
	const question, denied = "alice get pods team/x", "no"
	const allowed = `RBAC: allowed by RoleBinding "b/team" of Role "r" to User "alice"`
	step := func(name, want string) {
		t.Helper()
		if got := decide(t, a, question); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	step("nothing", denied)
	w.set(binding("team/b", "Role/r", "User alice", "User alice"))
	step("bound to a role that is not there", `no: RBAC: role.rbac.authorization.k8s.io "r" not found`)
	w.set(role("team/r", "get pods"))
	step("role made", allowed)
	w.set(role("team/r", "list pods"))
	step("role allows other things", denied)
	w.set(role("team/r", "get pods"))
	w.set(binding("team/b", "Role/r", "User bob"))
	step("bound to another", denied)
	w.set(binding("team/b", "Role/r", "User bob", "User alice"))
	step("bound again", allowed)
	w.remove(binding("team/b", "Role/r"))
	step("binding gone", denied)
	w.set(binding("team/b", "Role/r", "User alice"))
	w.remove(role("team/r"))
	step("role gone", `no: RBAC: role.rbac.authorization.k8s.io "r" not found`)
	w.remove(binding("team/b", "Role/r"))
	step("all gone", denied)
	if x := a.mu.index; len(x.roles)+len(x.subjects)+len(x.bindings) != 0 {
		t.Errorf("index keeps %d roles, %d subjects, %d bindings of nothing", len(x.roles), len(x.subjects), len(x.bindings))
	}
}

func TestAuthorizerReadsAllAgainWhenItFellBehind(t *testing.T) {
	w := newWorld(binding("team/b", "Role/r", "User alice"))
	a := New(w.caches)
	decide(t, a, "alice get pods team/x")
	for range 3 {
		w.set(role("team/r", "get pods"))
		for _, c := range w.caches.list() {
			c.Trim()
		}
	}
	if got := decide(t, a, "alice get pods team/x"); !strings.HasPrefix(got, "RBAC: allowed") {
		t.Errorf("got %s", got)
	}
}

func TestNothingIsAllowedBeforeTheCachesAreRead(t *testing.T) {
	p := &cache.Progress{}
	c := Caches{
		Roles: cache.New(rbac.Roles.Def, p), ClusterRoles: cache.New(rbac.ClusterRoles.Def, p),
		RoleBindings: cache.New(rbac.RoleBindings.Def, p), ClusterRoleBindings: cache.New(rbac.ClusterRoleBindings.Def, p),
	}
	a := New(c)
	if got := decide(t, a, "alice get pods"); got != "error: the roles and bindings have not been read yet" {
		t.Errorf("got %s", got)
	}
	if decision, _, err := auth.Authorizers(a).Authorize(t.Context(), ask("admin+system:masters get pods")); decision != authorizer.DecisionAllow || err != nil {
		t.Errorf("system:masters: got %v, %v", decision, err)
	}
	for _, one := range c.list() {
		one.Replace(nil, 1)
	}
	if got := decide(t, a, "alice get pods"); got != "no" {
		t.Errorf("once read: got %s", got)
	}
}

func TestRulesForAreThoseOfTheBindings(t *testing.T) {
	w := newWorld(
		role("view", "get,list pods", "get /healthz"), role("team/edit", "update pods for x"),
		binding("viewers", "ClusterRole/view", "User alice"), binding("team/edit", "Role/edit", "User alice"), binding("gone", "ClusterRole/gone", "User alice"),
	)
	got, incomplete, err := rulesFor(t, w, &user.DefaultInfo{Name: "alice"})
	want := []string{"[get list] [] [pods] []", "[get] [/healthz]", "[update] [] [pods] [x]"}
	if !slices.Equal(got, want) || !incomplete || err == nil || !strings.Contains(err.Error(), `"gone" not found`) {
		t.Errorf("got %q, incomplete %t, %v; want %q", got, incomplete, err, want)
	}
}

// Everything stands once, whether a role says it or only the group.
func TestRulesForMembersOfMastersAreThoseOfTheirRolesToo(t *testing.T) {
	admin := &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}
	some := []resource.Object{role("view", "get pods", "get /healthz"), binding("viewers", "ClusterRole/view", "User root")}
	all := []resource.Object{role("all", "* * in *", "* url:*"), binding("all", "ClusterRole/all", "Group "+user.SystemPrivilegedGroup)}
	want := []string{"[*] [*]", "[*] [*] [*] []", "[get] [/healthz]", "[get] [] [pods] []"}
	for name, objs := range map[string][]resource.Object{"by the group": some, "by a role": slices.Concat(some, all)} {
		got, incomplete, err := rulesFor(t, newWorld(objs...), admin)
		if !slices.Equal(got, want) || incomplete || err != nil {
			t.Errorf("%s: got %q, incomplete %t, %v; want %q", name, got, incomplete, err, want)
		}
	}
}

// rulesFor returns a user's rules in namespace team, sorted.
func rulesFor(t *testing.T, w *world, u user.Info) (got []string, incomplete bool, err error) {
	res, paths, incomplete, err := auth.Authorizers(New(w.caches)).RulesFor(t.Context(), u, "team")
	for _, r := range res {
		got = append(got, fmt.Sprint(r.GetVerbs(), r.GetAPIGroups(), r.GetResources(), r.GetResourceNames()))
	}
	for _, p := range paths {
		got = append(got, fmt.Sprint(p.GetVerbs(), p.GetNonResourceURLs()))
	}
	slices.Sort(got)
	return got, incomplete, err
}

func TestCoversComparesSinglePermissions(t *testing.T) {
	for _, c := range []struct {
		held, asked []string
		missing     string
	}{
		{[]string{"get,list pods"}, []string{"get pods"}, ""},
		{[]string{"get pods", "list pods"}, []string{"get,list pods"}, ""},
		{[]string{"get pods"}, []string{"get,list,watch pods"}, `{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}`},
		{[]string{"* * in *"}, []string{"get pods", "use x in y for z"}, ""},
		{[]string{"* * in *"}, []string{"get /healthz"}, `{NonResourceURLs:["/healthz"], Verbs:["get"]}`},
		{[]string{"get pods for a"}, []string{"get pods"}, `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`},
		{[]string{"get pods"}, []string{"get pods for a,b"}, ""},
		{[]string{"get pods for a,b"}, []string{"get pods for b,c"}, `{APIGroups:[""], Resources:["pods"], ResourceNames:["c"], Verbs:["get"]}`},
		{[]string{"get */scale in apps"}, []string{"get deployments/scale in apps"}, ""},
		{[]string{"get pods"}, []string{"get * in apps"}, `{APIGroups:["apps"], Resources:["*"], Verbs:["get"]}`},
		{[]string{"get /api/*"}, []string{"get /api/v1,/api/*"}, ""},
		{[]string{"get /api"}, []string{"get /api/*"}, `{NonResourceURLs:["/api/*"], Verbs:["get"]}`},
		{nil, nil, ""},
	} {
		ok, missing := Covers(rules(c.held...), rules(c.asked...))
		var got []string
		for _, r := range Compact(missing) {
			got = append(got, short(&r))
		}
		if strings.Join(got, " ") != c.missing || ok != (c.missing == "") {
			t.Errorf("%q over %q: got %t, %s; want %s", c.held, c.asked, ok, got, c.missing)
		}
	}
}

func TestNobodyGrantsMoreThanTheyHave(t *testing.T) {
	w := newWorld(
		role("view", "get pods"), role("secrets", "get secrets"), role("team/edit", "update pods"), role("escalate", "escalate roles,clusterroles in rbac.authorization.k8s.io"),
		role("binder", "bind clusterroles in rbac.authorization.k8s.io for secrets"), role("all", "* * in *", "* url:*"),
		binding("alice", "ClusterRole/view", "User alice"), binding("team/bob", "Role/edit", "User bob"),
		binding("carol", "ClusterRole/escalate", "User carol"), binding("dave", "ClusterRole/binder", "User dave"), binding("root", "ClusterRole/all", "User root"),
	)
	a := New(w.caches)
	e := &Escalation{Rules: a, Ask: auth.Authorizers(a)}
	aggregated := role("agg").(*rbacv1.ClusterRole)
	aggregated.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}
	const held = " (groups=[]) is attempting to grant RBAC permissions not currently held:\n"
	for _, c := range []struct {
		name, who string
		obj, old  resource.Object
		want      string
	}{
		{"what one has", "alice", role("team/r", "get pods"), nil, ""},
		{"more than one has", "alice", role("team/r", "get,delete pods", "get nodes"), nil, `roles.rbac.authorization.k8s.io "r" is forbidden: user "alice"` + held +
			`{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}` + "\n" + `{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}`},
		{"same rules with other labels", "alice", role("team/r", "delete pods"), role("team/r", "delete pods"), ""},
		{"a namespace's permission for the cluster", "bob", role("r", "update pods"), nil, `clusterroles.rbac.authorization.k8s.io "r" is forbidden: user "bob"` + held + `{APIGroups:[""], Resources:["pods"], Verbs:["update"]}`},
		{"a namespace's permission there", "bob", role("team/r", "update pods"), nil, ""},
		{"with the verb escalate", "carol", role("r", "* * in *"), nil, ""},
		{"bind what one has", "alice", binding("team/b", "ClusterRole/view", "User x"), nil, ""},
		{"bind more", "alice", binding("team/b", "ClusterRole/secrets", "User x"), nil, `rolebindings.rbac.authorization.k8s.io "b" is forbidden: user "alice"` + held + `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`},
		{"bind what is not there", "alice", binding("b", "ClusterRole/gone", "User x"), nil, `clusterroles.rbac.authorization.k8s.io "gone" not found`},
		{"with the verb bind", "dave", binding("b", "ClusterRole/secrets", "User x"), nil, ""},
		{"with the verb bind for another role", "dave", binding("b", "ClusterRole/view", "User x"), nil, `clusterrolebindings.rbac.authorization.k8s.io "b" is forbidden: user "dave"` + held + `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`},
		{"same binding", "alice", binding("b", "ClusterRole/secrets", "User x"), binding("b", "ClusterRole/secrets", "User x"), ""},
		{"aggregate without having all", "alice", aggregated, nil, `clusterroles.rbac.authorization.k8s.io "agg" is forbidden: must have cluster-admin privileges to use the aggregationRule`},
		{"aggregate with all", "root", aggregated, nil, ""},
		{"a master", "m+system:masters", role("r", "* * in *"), nil, ""},
	} {
		u := ask(c.who + " get x").User
		got := ""
		if err := e.Check(t.Context(), u, c.obj, c.old); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAggregateJoinsTheRolesThatAreSelected(t *testing.T) {
	labelled := func(name, label string, texts ...string) *rbacv1.ClusterRole {
		r := role(name, texts...).(*rbacv1.ClusterRole)
		r.Labels = map[string]string{"to": label}
		return r
	}
	admin := labelled("admin", "view", "get old")
	admin.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
		{MatchLabels: map[string]string{"to": "edit"}}, {MatchLabels: map[string]string{"to": "view"}},
	}}
	got, err := Aggregate(admin, []*rbacv1.ClusterRole{admin, labelled("z", "view", "get pods"), labelled("b", "edit", "update pods", "get pods"), labelled("a", "view", "get nodes"), labelled("x", "none", "get x")})
	want := rules("update pods", "get pods", "get nodes")
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	plain := labelled("plain", "view", "get pods")
	if got, err := Aggregate(plain, nil); err != nil || len(got) != 1 {
		t.Errorf("role without aggregation: got %v, %v; want its own rules", got, err)
	}
}

func TestDecisionsAndChangesAtOneTime(t *testing.T) {
	w := newWorld(role("view", "get pods"))
	a := New(w.caches)
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if got := decide(t, a, "alice get secrets a/b"); got != "no" {
					t.Errorf("got %s", got)
				}
				decide(t, a, "alice get pods a/b")
			}
		})
	}
	for i := range 500 {
		w.set(binding(fmt.Sprintf("a/%d", i%10), "ClusterRole/view", "User alice"))
		if got := decide(t, a, "alice get pods a/b"); got == "no" {
			t.Errorf("after binding %d: not allowed", i)
		}
	}
	close(done)
	wg.Wait()
}

func BenchmarkAuthorize(b *testing.B) {
	objs := []resource.Object{role("node", "get,list,watch services", "get configmaps", "create events")}
	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprintf("get,list,watch,create,update kind%d in group%d", i, i))
	}
	objs = append(objs, role("controller", many...), binding("controller", "ClusterRole/controller", "User robot"))
	for i := range 1000 {
		objs = append(objs, binding(fmt.Sprintf("ns%d/b", i), "ClusterRole/node", "User alice", "Group devs", fmt.Sprintf("User u%d", i)))
	}
	a := auth.Authorizers(New(newWorld(objs...).caches))
	for name, q := range map[string]string{
		"allowed in a namespace":   "alice+system:authenticated get configmaps ns500/x",
		"allowed by the last rule": "robot+system:authenticated update kind29.group29 ns5/x",
		"refused":                  "u5+system:authenticated delete configmaps ns6/x",
	} {
		b.Run(name, func(b *testing.B) {
			attrs := ask(q)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := a.Authorize(context.Background(), &attrs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
