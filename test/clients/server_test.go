package clients

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controllers/loadbalancer"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
	"github.com/kemudi/kemudi/test/wait"
)

func TestMain(m *testing.M) {
	if os.Getenv(asKubectl) != "" {
		kubectlMain()
	}
	flag.Parse()
	os.Exit(serveAndRun(m))
}

// theServer is what all tests of this package talk to.
var theServer *server

// server is a cluster that listens.
type server struct {
	dir        string // of everything that the tests leave on the disk
	url        string
	kubeconfig string           // of the administrator
	samples    *httptest.Server // serves the catalogue's sample objects
	config     *rest.Config
	client     *kubernetes.Clientset
	fresh      func(context.Context) error // waits until what has been written is in force
}

var errOver = errors.New("the tests are over")

func serveAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "clients")
	if err != nil {
		return complain(err)
	}
	defer os.RemoveAll(dir)
	// A person's own settings of kubectl must not reach the tests.
	for name, value := range map[string]string{"HOME": dir, "KUBECTL_KUBERC": "false", "KUBECONFIG": filepath.Join(dir, "none"), "TZ": "UTC", "NO_PROXY": "127.0.0.1"} {
		if err := os.Setenv(name, value); err != nil {
			return complain(err)
		}
	}
	time.Local = time.UTC
	g := task.NewGroup(context.Background())
	theServer, err = startServer(g, dir)
	code := 1
	if err == nil {
		theServer.samples = httptest.NewServer(http.FileServer(http.Dir("../../docs/requirements/manifests")))
		code = m.Run()
		theServer.samples.Close()
	}
	g.Cancel(errOver)
	if stopped := g.Wait(); err != nil || stopped != nil {
		return complain(errors.Join(err, stopped))
	}
	return code
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// startServer starts a cluster with two nodes whose pods run at once.
func startServer(g *task.Group, dir string) (*server, error) {
	keys, err := pki.Ensure(pki.Options{Dir: dir, Hosts: []string{"127.0.0.1"}, Domain: "cluster.local"})
	if err != nil {
		return nil, err
	}
	issuer, err := authn.NewIssuer(authn.IssuerOptions{Key: keys.ServiceAccounts})
	if err != nil {
		return nil, err
	}
	told, err := auditLog(dir)
	if err != nil {
		return nil, err
	}
	c, err := sim.Start(g.Context(), sim.Options{
		Nodes: []sim.NodeOptions{
			{Name: "node-1", StartAfter: time.Millisecond, Labels: map[string]string{"accelerator": "nvidia-tesla-p100"}},
			{Name: "node-2", StartAfter: time.Millisecond},
		},
		Tokens: issuer,
		// Those of class kemudi.io/load-balancer alone: others are given what they have by their tests.
		LoadBalancer: loadbalancer.Options{From: []string{"192.0.2.7"}, Beside: true},
		Plugins:      plane.Plugins{Enable: []string{"PodPreset"}},
		Serving: func(o *apiserver.Options, caches *watchcache.Set) error {
			o.RuntimeConfig = map[string]bool{"settings.k8s.io/v1alpha1": true, "scheduling.k8s.io/v1beta1": true}
			o.Tokens, o.Audit = issuer, told
			o.Authenticator = authn.New(authn.Options{ClientCA: keys.CA.Pool(), Tokens: []authenticator.Token{tokens(issuer, caches)}})
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	g.Go("cluster", func(ctx context.Context) error {
		<-ctx.Done()
		return c.Stop()
	})
	l, err := (&net.ListenConfig{}).Listen(g.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g.Go("serve", func(ctx context.Context) error {
		return c.Server().Serve(ctx, l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: keys.ServingCertificate, ClientCAs: keys.CA.Pool()})
	})
	s := &server{dir: dir, url: "https://" + l.Addr().String(), kubeconfig: filepath.Join(dir, "admin.kubeconfig"), fresh: c.Server().Fresh}
	if err := keys.WriteAdminKubeconfig(s.kubeconfig, "kemudi", s.url); err != nil {
		return nil, err
	}
	if s.config, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig); err != nil {
		return nil, err
	}
	s.config.QPS = -1
	if s.client, err = kubernetes.NewForConfig(s.config); err != nil {
		return nil, err
	}
	return s, linkKubectl(dir)
}

// auditLog is told, in the file audit.log, what the administrator does in the namespace audit.
func auditLog(dir string) (*audit.Log, error) {
	o := audit.Defaults()
	o.PolicyFile, o.File.Path = filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	policy := `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: Metadata, users: [kubernetes-admin], namespaces: [audit], resources: [{resources: [secrets, pods/log]}]}
- {level: RequestResponse, users: [kubernetes-admin], namespaces: [audit], verbs: [create, patch, delete]}
- {level: Metadata, users: [kubernetes-admin], namespaces: [audit]}
`
	if err := os.WriteFile(o.PolicyFile, []byte(policy), 0o600); err != nil {
		return nil, err
	}
	return audit.New(o)
}

// tokens believes the tokens of service accounts.
func tokens(issuer *authn.Issuer, caches *watchcache.Set) authenticator.Token {
	return authn.NewServiceAccountTokens(issuer, authn.Objects{
		ServiceAccount: reader(caches, core.ServiceAccounts),
		Secret:         reader(caches, core.Secrets),
		Pod:            reader(caches, core.Pods),
		Node: func(ctx context.Context, name string) *corev1.Node {
			return reader(caches, core.Nodes)(ctx, "", name)
		},
		Fresh: caches.Fresh,
	})
}

func reader[T resource.Object](caches *watchcache.Set, r *resource.Resource[T]) func(ctx context.Context, namespace, name string) T {
	c := caches.Cache(r.Def)
	return func(_ context.Context, namespace, name string) (obj T) {
		if it := c.Get(cache.Key(namespace, name)); it != nil {
			return it.Object.(T)
		}
		return obj
	}
}

// namespace makes a namespace that pods can be created in, and takes it away at
// the test's end.
func (s *server) namespace(t *testing.T, name string) {
	t.Helper()
	if _, err := s.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	wait.Until(t, func() error {
		_, err := s.client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
}

// http is a client with the administrator's rights that shows answers as they are.
func (s *server) http(t *testing.T) *http.Client {
	t.Helper()
	c, err := rest.HTTPClientFor(s.config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
