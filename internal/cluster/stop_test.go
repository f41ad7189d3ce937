package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/port"
)

// TestServerThatStopsAnswersWhatItTookOn stops a server while many write: each
// request is done, or was not taken at all. None fails within the server because
// a part that it needs has stopped before it.
func TestServerThatStopsAnswersWhatItTookOn(t *testing.T) {
	dir, err := os.MkdirTemp("", "k") // t.TempDir is too long for a run directory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ready := make(chan struct{})
	o := Options{
		Machine: Machine{
			DataDir: dir + "/data", RunDir: dir + "/run", NodeName: "n1", NodeIP: netip.MustParseAddr("192.0.2.1"), Logger: slog.New(slog.DiscardHandler),
			Step: func(_ string, done bool) {
				if done {
					close(ready)
				}
			},
		},
		NoNode: true, BindAddress: netip.MustParseAddr("127.0.0.1"), SecurePort: port.Reserve(t),
	}
	g := task.NewGroup(t.Context())
	g.Go("server", func(ctx context.Context) error { return Run(ctx, o) })
	if err := await(g, ready); err != nil {
		t.Fatal(err)
	}
	keys, err := pki.Ensure(pki.Options{Dir: o.DataDir})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := keys.CA.Issue(pki.Subject{Name: "admin", Organizations: []string{"system:masters"}, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	key, err := admin.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	k, err := kubernetes.NewForConfig(&rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", o.SecurePort), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: keys.CA.CertPEM(), CertData: admin.CertPEM(), KeyData: key},
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var done atomic.Int64
	for i := range 48 {
		wg.Go(func() {
			for n := 0; ; n++ {
				name := fmt.Sprintf("c%d-%d", i, n)
				_, err := k.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				if err != nil {
					if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown || strings.Contains(err.Error(), "store") {
						t.Errorf("create %s: %v", name, err)
					}
					return
				}
				if done.Add(1) == 400 {
					g.Cancel(context.Canceled)
				}
			}
		})
	}
	wg.Wait()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
