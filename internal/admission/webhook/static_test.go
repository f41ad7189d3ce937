package webhook_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/admission/webhook"
	"github.com/kemudi/kemudi/internal/hook"
)

func TestWebhooksOfFilesAreAskedAboutWebhooksToo(t *testing.T) {
	w := newWorld(t)
	w.on("/files", func(r *admissionv1.AdmissionReview) any {
		return &admissionv1.AdmissionResponse{Allowed: r.Request.Name != "bad"}
	})
	dir := t.TempDir()
	manifest := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"files.static.k8s.io"},"webhooks":[{
		"name":"files.example.com","admissionReviewVersions":["v1"],"sideEffects":"None","clientConfig":{"url":"` + w.url + `/files","caBundle":` + w.ca + `},
		"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]}]}`
	file := filepath.Join(dir, "a.json")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	o := admissiontest.New(t, "Namespace: {metadata: {name: default}}").Options()
	o.Webhooks = hook.New(hook.Options{})
	t.Cleanup(o.Webhooks.Close)
	o.Config = admission.Configurations{"ValidatingAdmissionWebhook": []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\nstaticManifestsDir: " + dir)}
	plugin, err := webhook.New(o).Validating()
	if err != nil {
		t.Fatal(err)
	}
	for object, refused := range map[string]bool{
		"ConfigMap: {metadata: {name: bad, namespace: default}}":  true,
		"ConfigMap: {metadata: {name: good, namespace: default}}": false,
		"ValidatingWebhookConfiguration: {metadata: {name: bad}}": true,
	} {
		if err := plugin.Validate(t.Context(), admissiontest.Request(t, object, "")); (err != nil) != refused {
			t.Errorf("%s: got %v, refused wanted: %t", object, err, refused)
		}
	}
	if err := os.WriteFile(file, []byte(strings.Replace(manifest, `"url":"`+w.url+`/files"`, `"service":{"namespace":"shop","name":"hooks"}`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "clientConfig.service is not supported for static manifests"
	if _, err := webhook.New(o).Validating(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a webhook at a Service: got %v, want %s", err, want)
	}
	w.refused(422, `names ending with ".static.k8s.io" are reserved`, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", manifest)
}
