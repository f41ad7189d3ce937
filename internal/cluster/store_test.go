package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/up"
)

// etcdElsewhere runs an etcd that asks its clients for certificates.
func etcdElsewhere(t *testing.T) Etcd {
	t.Helper()
	dir := t.TempDir()
	keys, err := pki.Ensure(pki.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pair := func(name string) (cert, key string) {
		p, err := keys.CA.Issue(pki.Subject{Name: name, Hosts: []string{"127.0.0.1"}, Client: true, Server: true})
		if err != nil {
			t.Fatal(err)
		}
		data, err := p.KeyPEM()
		if err != nil {
			t.Fatal(err)
		}
		return file(name+".pem", p.CertPEM()), file(name+"-key.pem", data)
	}
	e := Etcd{Servers: []string{fmt.Sprintf("https://127.0.0.1:%d", freePort(t))}, CAFile: file("authority.pem", keys.CA.CertPEM())}
	e.CertFile, e.KeyFile = pair("client")
	o := etcd.Options{Dir: dir, Name: "elsewhere", Log: slog.New(slog.DiscardHandler), NoSync: true, ListenClient: e.Servers[0], ClientCAFile: e.CAFile}
	o.CertFile, o.KeyFile = pair("server")
	st, err := etcd.New(o)
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(context.WithoutCancel(t.Context()))
	g.Go("etcd", st.Run)
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	if err := await(g, st.Ready()); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestServersOfOneEtcdAreOneCluster that have the same keys.
func TestServersOfOneEtcdAreOneCluster(t *testing.T) {
	e := etcdElsewhere(t)
	g := task.NewGroup(t.Context())
	var clients []kubernetes.Interface
	var first string
	for i := range 2 {
		dir, err := os.MkdirTemp("", "k") // t.TempDir is too long for a run directory
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if i == 0 {
			first = dir
		} else if err := os.CopyFS(dir+"/data/pki", os.DirFS(first+"/data/pki")); err != nil {
			t.Fatal(err)
		}
		ready := make(chan struct{})
		o := Options{
			Machine: Machine{
				DataDir: dir + "/data", RunDir: dir + "/run", NodeName: fmt.Sprintf("n%d", i), NodeIP: netip.MustParseAddr("192.0.2.1"), Logger: slog.New(slog.DiscardHandler),
				Step: func(_ string, done bool) {
					if done {
						close(ready)
					}
				},
			},
			NoNode: true, BindAddress: netip.MustParseAddr("127.0.0.1"), SecurePort: freePort(t), Etcd: e,
		}
		g.Go(o.NodeName, func(ctx context.Context) error { return Run(ctx, o) })
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
		clients = append(clients, client)
		if _, err := os.Stat(o.DataDir + "/etcd"); err == nil {
			t.Error("a server whose store is elsewhere has made one of its own")
		}
	}
	for i := range 10 {
		name := fmt.Sprintf("m%d", i)
		by, other := clients[i%2].CoreV1().ConfigMaps("default"), clients[(i+1)%2].CoreV1().ConfigMaps("default")
		if _, err := by.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("read from the other server at once: %v", err)
		}
	}
	leases, err := clients[0].CoordinationV1().Leases("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) < 2 {
		t.Errorf("got %d leases, %v; want those of controllers and scheduler", len(leases.Items), err)
	}
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
