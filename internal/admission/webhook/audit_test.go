package webhook_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/audit"
)

func TestAuditLogTellsWhatWebhooksDid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := audit.Defaults()
	o.PolicyFile, o.File.Path = filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Request, omitStages: [RequestReceived], resources: [{resources: [configmaps]}]}, {level: None}]\n"
	if err := os.WriteFile(o.PolicyFile, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := audit.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *apiserver.Options) { o.Audit = log })
	w.on("/patch", patching(`[{"op":"add","path":"/data","value":{"a":"b"}}]`))
	w.on("/note", func(*admissionv1.AdmissionReview) any {
		return &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"why": "so"}}
	})
	const ignore = `"failurePolicy":"Ignore"`
	w.must(201, "POST", mutatingPath, config("m", w.hook("/patch", ""), w.hook("/none", `"name":"gone.example.com",`+ignore)))
	w.must(201, "POST", validatingPath, config("v", w.hook("/note", `"name":"note.example.com"`), w.hook("/none", `"name":"lost.example.com",`+ignore)))
	w.must(201, "POST", mapsPath, `{"metadata":{"name":"a"}}`)
	lines, err := os.ReadFile(o.File.Path)
	if err != nil {
		t.Fatal(err)
	}
	var e auditv1.Event
	if err := json.Unmarshal([]byte(strings.Split(string(lines), "\n")[0]), &e); err != nil {
		t.Fatalf("%v in %s", err, lines)
	}
	got := e.Annotations
	maps.DeleteFunc(got, func(key, _ string) bool {
		return strings.HasPrefix(key, "authorization.k8s.io/") || strings.HasPrefix(key, "apiserver.latency.k8s.io/")
	})
	want := map[string]string{
		"mutation.webhook.admission.k8s.io/round_0_index_0":               `{"configuration":"m","webhook":"a.example.com","mutated":true}`,
		"patch.webhook.admission.k8s.io/round_0_index_0":                  `{"configuration":"m","webhook":"a.example.com","patch":[{"op":"add","path":"/data","value":{"a":"b"}}],"patchType":"JSONPatch"}`,
		"mutation.webhook.admission.k8s.io/round_0_index_1":               `{"configuration":"m","webhook":"gone.example.com","mutated":false}`,
		"failed-open.mutation.webhook.admission.k8s.io/round_0_index_1":   "gone.example.com",
		"failed-open.validating.webhook.admission.k8s.io/round_0_index_1": "lost.example.com",
		"note.example.com/why": "so",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got:\n%v\nwant:\n%v", got, want)
	}
}
