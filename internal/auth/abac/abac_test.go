package abac

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// file has the lines of upstream's example, and of the first releases'.
const file = `# who may do what
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "alice", "namespace": "*", "resource": "*", "apiGroup": "*"}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "bob", "namespace": "projectCaribou", "resource": "pods", "readonly": true}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"group": "auditors", "user": "eve", "resource": "events", "namespace": "*", "apiGroup": "*", "readonly": true}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"group": "*", "nonResourcePath": "/version"}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "bob", "nonResourcePath": "/healthz*", "readonly": true}}

  {"user": "scheduler", "readonly": true, "resource": "pods"}
{"group": "old-admins"}
`

func read(t *testing.T, text string) (Policies, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(path)
}

// ask is "user[+group] verb path" or "user[+group] verb group/resource namespace".
func ask(text string) authorizer.Attributes {
	f := strings.Fields(text)
	who := strings.Split(f[0], "+")
	a := &authorizer.AttributesRecord{User: &user.DefaultInfo{Name: who[0], Groups: append(who[1:], user.AllAuthenticated)}, Verb: f[1]}
	if who[0] == "nobody" {
		a.User = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	}
	if a.Path = f[2]; strings.HasPrefix(f[2], "/") {
		return a
	}
	a.ResourceRequest = true
	a.APIGroup, a.Resource, _ = strings.Cut(f[2], "/")
	if a.Resource == "" {
		a.APIGroup, a.Resource = "", f[2]
	}
	if len(f) > 3 {
		a.Namespace = f[3]
	}
	return a
}

func TestPoliciesAllowWhatALineSays(t *testing.T) {
	policies, err := read(t, file)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"alice delete apps/deployments anywhere": true,
		"alice get /metrics":                     false,
		"bob list pods projectCaribou":           true,
		"bob get pods projectCaribou":            true,
		"bob delete pods projectCaribou":         false,
		"bob list pods default":                  false,
		"bob list secrets projectCaribou":        false,
		"bob get /healthz/etcd":                  true,
		"bob post /healthz":                      false,
		"eve+auditors watch events default":      true,
		"eve list events default":                false,
		"mallory+auditors list events default":   false,
		"carol get /version":                     true,
		"nobody get /version":                    false,
		"scheduler list pods any":                true,
		"scheduler create pods any":              false,
		"scheduler get /metrics":                 false,
		"dora+old-admins delete apps/sets any":   true,
		"dora+old-admins get /metrics":           true,
		"dora delete apps/sets any":              false,
	} {
		decision, reason, err := policies.Authorize(t.Context(), ask(text))
		if got := decision == authorizer.DecisionAllow; got != want || err != nil {
			t.Errorf("%s: got %v, %q, %v; want %v", text, decision, reason, err, want)
		}
		if !want && (decision != authorizer.DecisionNoOpinion || reason != "No policy matched.") {
			t.Errorf("%s: got %v, %q; want no opinion", text, decision, reason)
		}
	}
}

func TestRulesAreThoseOfAUsersPolicies(t *testing.T) {
	policies, err := read(t, file)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	res, non, incomplete, err := policies.RulesFor(t.Context(), ask("bob get /").GetUser(), "projectCaribou")
	for _, r := range res {
		got += fmt.Sprintln(r.GetVerbs(), r.GetAPIGroups(), r.GetResources())
	}
	for _, r := range non {
		got += fmt.Sprintln(r.GetVerbs(), r.GetNonResourceURLs())
	}
	// Policies of paths that name no namespace are about none, as upstream's.
	if want := "[get list watch] [] [pods]\n"; got != want || incomplete || err != nil {
		t.Errorf("got %s, %v, %v, want %s", got, incomplete, err, want)
	}
}

func TestLinesThatCannotBeAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"{\"user\": \"a\"}\n{":                "line 2: {: unexpected end of JSON input",
		`{"usr": "a"}`:                        `line 1: {"usr": "a"}: unknown field "usr"`,
		`{"apiVersion": "v1", "kind": "Pod"}`: "is v1 Pod, want abac.authorization.kubernetes.io/v1beta1 Policy",
		`{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"verbs": ["get"]}}`: `unknown field "spec.verbs"`,
		`[]`: "line 1: []: json: cannot unmarshal array",
	} {
		if _, err := read(t, text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "policy.jsonl, line") {
			t.Errorf("%s: got %v, want the file and %q", text, err, want)
		}
	}
	if _, err := Read("/nowhere.jsonl"); err == nil {
		t.Error("a file that is not there: got no error")
	}
}
