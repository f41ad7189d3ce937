package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/test/wait"
)

func TestAuditHearsOfControllersAndOfClients(t *testing.T) {
	dir := t.TempDir()
	policy, file := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "log", "audit.log")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, omitStages: [RequestReceived]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newJoinBed(t, func(o *Options) {
		o.API.Audit = audit.Defaults()
		o.API.Audit.PolicyFile, o.API.Audit.File.Path = policy, file
	})
	if _, err := b.client(rest.Config{}).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a stranger may list pods")
	}
	for name, line := range map[string]string{
		"a stranger":   `"requestURI":"/api/v1/namespaces/default/pods".*"username":"system:anonymous".*"sourceIPs":\["127.0.0.1"\].*"authorization.k8s.io/decision":"forbid"`,
		"a controller": `"requestURI":"/api/v1/namespaces/default/serviceaccounts","verb":"create","user":{"username":"system:serviceaccount:kube-system:service-account-controller".*"code":201.*"authorization.k8s.io/reason":"RBAC: allowed by ClusterRoleBinding`,
		"the server":   `"verb":"create","user":{"username":"system:apiserver".*"userAgent":"kemudi"`,
	} {
		want := regexp.MustCompile(line)
		wait.Until(t, func() error {
			if data, err := os.ReadFile(file); err != nil || !want.Match(data) {
				return fmt.Errorf("%s is not told of: %w, %d bytes", name, err, len(data))
			}
			return nil
		})
	}
}

func TestAuditThatCannotBeIsRefusedByTheFlag(t *testing.T) {
	o := API{Audit: audit.Defaults()}
	o.Audit.PolicyFile = "/nowhere/policy.yaml"
	want := `--audit-policy-file: loading audit policy file: failed to read file path "/nowhere/policy.yaml": open /nowhere/policy.yaml: no such file or directory`
	if err := o.check(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
