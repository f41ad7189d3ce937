package imagepolicy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/watchcache"
)

func TestAuditLogTellsWhatTheWebhookSaidAndThatItFailed(t *testing.T) {
	g := newGuard(t)
	dir := t.TempDir()
	o := audit.Defaults()
	o.PolicyFile, o.File.Path = filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, omitStages: [RequestReceived], verbs: [create], resources: [{resources: [pods]}]}, {level: None}]\n"
	if err := os.WriteFile(o.PolicyFile, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := audit.New(o)
	if err != nil {
		t.Fatal(err)
	}
	p := sim.Plane(t, plane.Options{
		Plugins: plane.Plugins{
			Enable: []string{"ImagePolicyWebhook"}, Disable: []string{"ServiceAccount"},
			Config: admission.Configurations{"ImagePolicyWebhook": fmt.Appendf(nil, "imagePolicy: {kubeConfigFile: %q, defaultAllow: true, retryBackoff: 1}", g.kubeconfig(t))},
		},
		Serving: func(o *apiserver.Options, _ *watchcache.Set) error {
			o.Audit = log
			return nil
		},
	})
	for _, image := range []string{"good/a", "broken/a"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "x-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}
		if _, err := client.For(p.Admin(), core.Pods).Create(t.Context(), pod); err != nil {
			t.Fatalf("%s: %v", image, err)
		}
	}
	text, err := os.ReadFile(o.File.Path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	const prefix = "imagepolicywebhook.image-policy.k8s.io/"
	want := []map[string]string{{prefix + "seen": "yes"}, {prefix + "failed-open": "true"}}
	if len(lines) != len(want) {
		t.Fatalf("got %d events, want %d:\n%s", len(lines), len(want), text)
	}
	for i, line := range lines {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		maps.DeleteFunc(e.Annotations, func(key, _ string) bool { return !strings.HasPrefix(key, prefix) })
		if !maps.Equal(e.Annotations, want[i]) {
			t.Errorf("got %v, want %v", e.Annotations, want[i])
		}
	}
}
