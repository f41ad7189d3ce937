package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/store/seal"
	"github.com/kemudi/kemudi/internal/up"
)

// TestEncryptedStoreOfAnotherKubernetesIsTakenOverAndRotated: with the same file it is opened, and what is
// written is encrypted with today's key, secrets of the old keys included.
func TestEncryptedStoreOfAnotherKubernetesIsTakenOverAndRotated(t *testing.T) {
	t.Parallel()
	const keyA, keyB = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	old, err := seal.NewCBC([]seal.Key{{Name: "a", Secret: []byte(keyA)}})
	if err != nil {
		t.Fatal(err)
	}
	chain := seal.Chain{Resource: "secrets", Providers: []seal.Provider{old}}
	op := stored(t, "/registry/secrets/default/hidden", &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hidden", UID: "h"}, Data: map[string][]byte{"k": []byte("top secret")},
	})
	if op.Value, err = chain.Seal(op.Value, op.Key); err != nil {
		t.Fatal(err)
	}
	o, _ := taking(t, oldCluster(t, op))
	o.API.Encryption.File = filepath.Join(t.TempDir(), "encryption.yaml")
	file := `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, widgets.example.com]
  providers:
  - aesgcm: {keys: [{name: b, secret: ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=}]}
  - aescbc: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
  - identity: {}
`
	if err := os.WriteFile(o.API.Encryption.File, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	api, stop := runServer(t, o)
	s, err := api.CoreV1().Secrets("default").Get(t.Context(), "hidden", metav1.GetOptions{})
	if err != nil || string(s.Data["k"]) != "top secret" {
		t.Fatalf("got %v, %v", s, err)
	}
	access := up.Access{DataDir: o.DataDir}
	states, err := up.EncryptionStates(t.Context(), access)
	if err != nil {
		t.Fatal(err)
	}
	stale := map[string]int{}
	for _, s := range states {
		stale[s.Resource] = s.Stale
		if s.Writes != "k8s:enc:aesgcm:v1:b:" || s.Unreadable > 0 {
			t.Errorf("got %+v", s)
		}
	}
	if stale["secrets"] == 0 || stale["widgets.example.com"] != 1 {
		t.Errorf("stale: got %v", stale)
	}
	done, err := up.Rotate(t.Context(), access, func(*up.Rotation, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range done {
		if r.Rewritten < stale[r.Resource] || len(r.Failed) > 0 {
			t.Errorf("got %+v, want %d rewritten", r, stale[r.Resource])
		}
	}
	metrics, err := api.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil || !bytes.Contains(metrics, []byte(`apiserver_storage_transformation_operations_total{resource="secrets",status="OK",transformation_type="from_storage",transformer_prefix="k8s:enc:aescbc:v1:"}`)) {
		t.Errorf("metrics: %v, and what was opened is not among them", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for key, value := range database(t, o.DataDir) {
		if strings.Contains(value, "top secret") || strings.Contains(value, keyB) {
			t.Errorf("%s shows what is secret", key)
		}
		if strings.HasPrefix(key, "/registry/secrets/") || strings.HasPrefix(key, "/registry/example.com/widgets/") {
			seen++
			if got := seal.Prefix([]byte(value)); got != "k8s:enc:aesgcm:v1:b:" {
				t.Errorf("%s begins with %q", key, got)
			}
		}
	}
	if seen < 3 {
		t.Errorf("looked at %d values", seen)
	}
}
