package cluster

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/port"
)

// planeOnly are the options of a server without a node, in a directory of its own.
func planeOnly(t *testing.T) Options {
	t.Helper()
	dir, err := os.MkdirTemp("", "k") // t.TempDir is too long for a run directory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Options{
		Machine: Machine{
			DataDir: dir + "/data", RunDir: dir + "/run", NodeName: "n1", NodeIP: netip.MustParseAddr("192.0.2.1"), Logger: slog.New(slog.DiscardHandler),
		},
		NoNode: true, BindAddress: netip.MustParseAddr("127.0.0.1"), SecurePort: port.Reserve(t),
	}
}

// runServer runs a server until stop is called, which returns what Run did.
func runServer(t *testing.T, o Options) (_ kubernetes.Interface, stop func() error) {
	t.Helper()
	ready := make(chan struct{})
	told := o.Step
	o.Step = func(name string, done bool) {
		if told != nil {
			told(name, done)
		}
		if done {
			close(ready)
		}
	}
	g := task.NewGroup(context.WithoutCancel(t.Context()))
	g.Go("server", func(ctx context.Context) error { return Run(ctx, o) })
	stop = func() error {
		g.Cancel(context.Canceled)
		return g.Wait()
	}
	t.Cleanup(func() { _ = stop() }) // the test has looked
	if err := await(g, ready); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", up.AdminKubeconfig(o.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client, stop
}

func TestEphemeralServerLeavesNothing(t *testing.T) {
	t.Parallel()
	o := planeOnly(t)
	o.Ephemeral = true
	for range 2 {
		api, stop := runServer(t, o)
		if !up.Ephemeral(o.DataDir) {
			t.Error("while it runs nothing says that it is ephemeral")
		}
		if _, err := api.CoreV1().ConfigMaps("default").Get(t.Context(), "m", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("got %v of what an earlier cluster had, want that it is not there", err)
		}
		if _, err := api.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		if leases, err := api.CoordinationV1().Leases("kube-system").List(t.Context(), metav1.ListOptions{}); err != nil || len(leases.Items) != 0 {
			t.Errorf("got %d leases, %v; want none: it is alone", len(leases.Items), err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"etcd", "etcd.lock", "ephemeral"} {
			if _, err := os.Stat(filepath.Join(o.DataDir, name)); err == nil {
				t.Errorf("%s is there afterwards", name)
			}
		}
	}
}

func TestEphemeralServerRefusesAStore(t *testing.T) {
	t.Parallel()
	o := planeOnly(t)
	_, stop := runServer(t, o)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	o.Ephemeral = true
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "has the store of a cluster, which stays as it is") || up.Ephemeral(o.DataDir) {
		t.Errorf("got %v, want that it refuses the store, and leaves no mark", err)
	}
	o.Ephemeral = false
	if _, stop := runServer(t, o); stop() != nil {
		t.Error("the store does not work any more")
	}
	o.Ephemeral, o.Etcd.Servers = true, []string{"http://192.0.2.1:2379"}
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "neither with --etcd-servers") {
		t.Errorf("got %v, want that it refuses a store elsewhere", err)
	}
}

// TestCrashedEphemeralServerIsForgottenByTheNext, which is not ephemeral: what pods had goes,
// what people have put there stays.
func TestCrashedEphemeralServerIsForgottenByTheNext(t *testing.T) {
	t.Parallel()
	o := planeOnly(t)
	gone := []string{"kubelet/pods/1/volumes/v/f", "kubelet/volumes/v/f", "podnet/ipam/f", "cni/results/f", "ephemeral"}
	stays := []string{"kubelet/config.json", "kubelet/seccomp/p.json"}
	for _, name := range append(gone, stays...) {
		path := filepath.Join(o.DataDir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("server\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, stop := runServer(t, o)
	for _, name := range gone {
		if _, err := os.Stat(filepath.Join(o.DataDir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range stays {
		if _, err := os.Stat(filepath.Join(o.DataDir, name)); err != nil {
			t.Error(err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
