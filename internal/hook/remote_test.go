package hook_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/hook"
)

func TestWebhooksOfKubeconfigsAreReachedAsTheyAreTold(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(`
apiVersion: v1
kind: Config
clusters: [{name: there, cluster: {server: "https://decides.example/authorize"}}]
contexts: [{name: it, context: {cluster: there}}]
current-context: it
`), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := hook.OpenRemote(hook.RemoteOptions{Kubeconfig: file, Backoff: time.Millisecond, Dial: func(_ context.Context, network, address string) (net.Conn, error) {
		return nil, errors.New("asked for " + network + " " + address)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Post(t.Context(), struct{}{}, nil, nil); err == nil || !strings.Contains(err.Error(), "asked for tcp decides.example:443") {
		t.Errorf("got %v", err)
	}
}
