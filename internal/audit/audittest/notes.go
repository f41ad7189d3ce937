// Package audittest has an audited request for tests of what notes something of it. What
// is told otherwise is tested by packages audit and apiserver.
package audittest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/audit"
)

// Request is a request that is audited; notes ends it and returns its annotations.
func Request(t testing.TB) (r *audit.Request, notes func() map[string]string) {
	t.Helper()
	dir := t.TempDir()
	o := audit.Defaults()
	o.PolicyFile, o.File.Path = filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, omitStages: [RequestReceived]}]\n"
	if err := os.WriteFile(o.PolicyFile, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := audit.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r = l.New("test")
	return r, func() map[string]string {
		t.Helper()
		code := 200
		r.Decide(authorizer.AttributesRecord{})
		r.End(&code)
		line, err := os.ReadFile(o.File.Path)
		if err != nil {
			t.Fatal(err)
		}
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("got %s: %v", line, err)
		}
		return e.Annotations
	}
}
