package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/port"
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
	e := Etcd{Servers: []string{fmt.Sprintf("https://127.0.0.1:%d", port.Reserve(t))}, CAFile: file("authority.pem", keys.CA.CertPEM())}
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

// oneOfSeveral is a server without a node whose store is elsewhere.
type oneOfSeveral struct {
	Dir, Name string
	Port      uint16
	Etcd      Etcd
}

func (s oneOfSeveral) options(ready func()) Options {
	return Options{
		Machine: Machine{
			DataDir: s.Dir + "/data", RunDir: s.Dir + "/run", NodeName: s.Name, NodeIP: netip.MustParseAddr("192.0.2.1"), Logger: slog.New(slog.DiscardHandler),
			Step: func(_ string, done bool) {
				if done {
					ready()
				}
			},
		},
		NoNode: true, BindAddress: netip.MustParseAddr("127.0.0.1"), SecurePort: s.Port, Etcd: s.Etcd,
	}
}

// shortDir is a directory for a server: t.TempDir is too long for a run directory.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestServersOfOneEtcdAreOneCluster that have the same keys.
func TestServersOfOneEtcdAreOneCluster(t *testing.T) {
	e := etcdElsewhere(t)
	g := task.NewGroup(t.Context())
	var clients []kubernetes.Interface
	var first string
	for i := range 2 {
		dir := shortDir(t)
		if i == 0 {
			first = dir
		} else if err := os.CopyFS(dir+"/data/pki", os.DirFS(first+"/data/pki")); err != nil {
			t.Fatal(err)
		}
		ready := make(chan struct{})
		o := oneOfSeveral{Dir: dir, Name: fmt.Sprintf("n%d", i), Port: port.Reserve(t), Etcd: e}.options(func() { close(ready) })
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

// TestServerJoinsAClusterOnAnEtcdOfOthers by a token: it gets the cluster's keys and keeps no store.
func TestServerJoinsAClusterOnAnEtcdOfOthers(t *testing.T) {
	t.Parallel()
	first := newOneServer(t, "n0")
	first.o.Etcd = etcdElsewhere(t)
	first.start().write("before")
	token := first.token(up.TokenOptions{Server: true, Uses: 1, Life: time.Hour})

	second := newOneServer(t, "n1").by(first, token)
	refused := func(s *oneServer, want string) {
		t.Helper()
		if why := s.begin().ends(); !strings.Contains(why, want) {
			t.Errorf("got %s, want %s", why, want)
		}
		if pin, err := pki.AuthorityPin(s.o.DataDir); pin != "" || err != nil {
			t.Errorf("a server that was refused has the authority %q, %v", pin, err)
		}
	}
	refused(second, "the servers of this cluster keep no store of their own: start this one with their --etcd-servers")
	second.o.Etcd = first.o.Etcd
	second.start().sees("before")
	trace.Proves(t, "COMP-003")
	second.write("second")
	first.sees("second")
	for _, s := range []*oneServer{first, second} {
		if _, err := os.Stat(filepath.Join(s.o.DataDir, "etcd")); err == nil {
			t.Errorf("%s has made a store of its own", s.o.NodeName)
		}
		if _, err := up.Members(t.Context(), s.access()); err == nil || !strings.Contains(err.Error(), "ask the etcd of --etcd-servers for its members") {
			t.Errorf("members as %s knows them: got %v", s.o.NodeName, err)
		}
	}
	pins := map[string]bool{}
	for _, s := range []*oneServer{first, second} {
		pin, err := pki.AuthorityPin(s.o.DataDir)
		if err != nil {
			t.Fatal(err)
		}
		pins[pin] = true
	}
	if len(pins) != 1 {
		t.Errorf("got authorities %v, want one", pins)
	}

	// The token is used up, and who has joined needs neither it nor the first server.
	third := newOneServer(t, "n2").by(second, token)
	third.o.Etcd = first.o.Etcd
	refused(third, "used up")
	if err := errors.Join(second.stop(), first.stop()); err != nil {
		t.Error(err)
	}
	second.o.Joining.Servers, second.o.Joining.Token = nil, join.Token{}
	second.start().sees("before", "second")
}
