package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/rbac"
	"github.com/kemudi/kemudi/internal/apiserver/tunnel"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/reach"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/version"
	"github.com/kemudi/kemudi/internal/worker"
	"github.com/kemudi/kemudi/test/port"
)

// portBed is a server on a memory store whose node agent's port is served.
type portBed struct {
	*testing.T
	s *server
	g *task.Group
	t client.Transport // as the node agent

	handler http.Handler // the agent's
}

func newPortBed(t *testing.T, with ...func(*Options)) *portBed {
	t.Helper()
	given := Options{Machine: Machine{
		DataDir: t.TempDir(), NodeName: "n1", NodeIP: netip.MustParseAddr("192.0.2.1"), Logger: slog.New(slog.DiscardHandler),
		Agent: worker.Agent{Address: netip.MustParseAddr("127.0.0.1"), Port: port.Reserve(t)},
	}}
	for _, f := range with {
		f(&given)
	}
	o, err := given.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	b := &portBed{T: t, s: newServer(o, addresses{}), g: task.NewGroup(t.Context())}
	b.must(b.s.keys(t.Context()))
	b.s.plane, err = plane.New(plane.Options{
		Store: mem.New(mem.Options{}), CABundle: string(b.s.pki.CA.CertPEM()), Logger: o.Logger, Serving: b.s.configure, ProxyCertificate: b.s.pki.FrontProxyCertificate,
		Controllers: controllers.Options{Authority: b.s.pki.CA, Certificates: o.Controllers.Certificates}, Plugins: o.API.Plugins, Authorization: o.API.Authorization,
	})
	b.must(err)
	b.g.Go("control plane", b.s.plane.Run)
	t.Cleanup(func() {
		b.g.Cancel(context.Canceled)
		if err := b.g.Wait(); err != nil {
			t.Error(err)
		}
	})
	b.must(await(b.g, b.s.plane.Ready()))
	b.t = b.s.plane.Server().As(&user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup, user.AllAuthenticated}}, "kubelet")
	runtime := fakecri.New(fakecri.Options{})
	agent, err := kubelet.New(kubelet.Options{
		NodeName: "n1", Transport: b.t, Runtime: runtime, Images: runtime, Simulated: true, Port: int(o.Agent.Port), NodeIPs: []string{"127.0.0.1"},
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}, Log: o.Logger,
	})
	b.must(err)
	b.g.Go("agent", agent.Run)
	b.must(b.s.serving.renew())
	b.handler = agent.Handler()
	b.must(b.servePort())
	return b
}

// servePort serves the agent's port as a worker does.
func (b *portBed) servePort() error {
	authority := b.s.pki.CA.Pool()
	return worker.Port{
		NodeName: "n1", Address: netip.AddrPortFrom(b.s.o.Agent.Address, b.s.o.Agent.Port), Transport: b.t,
		ClientCA: func() *x509.CertPool { return authority }, Serving: b.s.serving.get, Handler: b.handler, Logger: b.s.o.Logger,
	}.Serve(b.g)
}

// served waits until the node says where its agent is served.
func (b *portBed) served() *corev1.Node {
	b.Helper()
	var found *corev1.Node
	nodes, done := client.Cached(b.s.plane.Admin(), core.Nodes, ""), errors.New("done")
	err := nodes.Each(b.Context(), cache.FollowOptions{}, func([]cache.Delta) error {
		if node, ok := nodes.Get("", "n1"); ok && node.Status.DaemonEndpoints.KubeletEndpoint.Port != 0 {
			found = node
			return done
		}
		return nil
	})
	if !errors.Is(err, done) {
		b.Fatalf("node n1 does not say where its agent is served: %v", err)
	}
	return found
}

func (b *portBed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// as is a client with a certificate, or without one.
func (b *portBed) as(cert ...tls.Certificate) *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(b.s.pki.CA.Cert)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: cert}, DisableKeepAlives: true}
	return &http.Client{Transport: tr}
}

// ask returns the code and text of an answer.
func (b *portBed) ask(c *http.Client, method, path, token string) string {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, fmt.Sprintf("https://127.0.0.1:%d%s", b.s.o.Agent.Port, path), nil)
	b.must(err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.Do(r)
	b.must(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	b.must(err)
	return fmt.Sprintf("%d %s", res.StatusCode, strings.TrimSpace(string(body)))
}

// account makes a service account that may use subresources of nodes, and
// returns its token.
func (b *portBed) account(name string, subs ...string) string {
	b.Helper()
	ctx, admin := b.Context(), b.s.plane.Admin()
	accounts := client.For(admin, core.ServiceAccounts)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	b.must(err)
	if len(subs) > 0 {
		_, err := client.For(admin, rbac.ClusterRoles).Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: subs}},
		})
		b.must(err)
		_, err = client.For(admin, rbac.ClusterRoleBindings).Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}},
		})
		b.must(err)
	}
	answer, err := accounts.Post(ctx, "default", name, "token", &authenticationv1.TokenRequest{})
	b.must(err)
	return answer.(*authenticationv1.TokenRequest).Status.Token
}

func TestNodeAgentsPortLetsOnlyThoseInWhoMay(t *testing.T) {
	b := newPortBed(t)
	admin, err := b.s.pki.Admin()
	b.must(err)
	other, err := pki.Ensure(pki.Options{Dir: t.TempDir()})
	b.must(err)
	stranger, err := other.Admin()
	b.must(err)
	serving := b.s.pki.KubeletClient
	nothing, metrics, pods := b.account("nothing"), b.account("metrics", "nodes/metrics"), b.account("pods", "nodes/pods")
	logs, zpages := b.account("logs", "nodes/log"), b.account("zpages", "nodes/statusz", "nodes/configz")
	all := b.account("all", "nodes/proxy", "nodes/stats")
	none := b.as()
	forbidden := func(who, sub string) string {
		return "403 Forbidden (user=system:serviceaccount:default:" + who + ", verb=get, resource=nodes, subresource(s)=[" + sub + "])"
	}
	for _, c := range []struct {
		who    string
		client *http.Client
		token  string
		path   string
		want   string // begins the answer
	}{
		{"nobody", none, "", "/healthz", "401 Unauthorized"},
		{"nobody", none, "", "/pods", "401 Unauthorized"},
		{"nobody", none, "", "/no/such/path", "401 Unauthorized"},
		{"a bad token", none, "nonsense", "/healthz", "401 Unauthorized"},
		{"another cluster's administrator", b.as(stranger.TLS()), "", "/healthz", "401 Unauthorized"},
		{"the administrator", b.as(admin.TLS()), "", "/healthz", "200 ok"},
		{"the administrator", b.as(admin.TLS()), "", "/pods", `200 {"kind":"PodList"`},
		{"the administrator", b.as(admin.TLS()), "", "/stats/summary", `200 {"node":{"nodeName":"n1"`},
		{"the administrator", b.as(admin.TLS()), "", "/configz", `200 {"kubeletconfig":{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1","enableServer":true,`},
		{"the administrator", b.as(admin.TLS()), "", "/containerLogs/default/a/c", "404 "},
		{"the API server", b.as(serving.TLS()), "", "/metrics", "200 # HELP "},
		{"the API server", b.as(serving.TLS()), "", "/metrics/resource", "200 # HELP "},
		{"the administrator", b.as(admin.TLS()), "", "/logs/", "200 <!doctype html>"},
		{"a reader of logs", none, logs, "/logs/", "200 <!doctype html>"},
		{"a reader of logs", none, logs, "/logs/../../etc/passwd", forbidden("logs", "proxy")},
		{"a reader of logs", none, logs, "/pods", forbidden("logs", "pods proxy")},
		{"who has the old right", none, all, "/logs/", forbidden("all", "log")},
		{"an account without rights", none, nothing, "/healthz", forbidden("nothing", "healthz proxy")},
		{"an account without rights", none, nothing, "/pods", forbidden("nothing", "pods proxy")},
		{"an account without rights", none, nothing, "/metrics", forbidden("nothing", "metrics")},
		{"an account without rights", none, nothing, "/metrics/resource", forbidden("nothing", "metrics")},
		{"an account without rights", none, nothing, "/metricsandmore", forbidden("nothing", "proxy")},
		{"an account without rights", none, nothing, "/stats/summary", forbidden("nothing", "stats")},
		{"an account without rights", none, nothing, "/exec/default/a/c", forbidden("nothing", "proxy")},
		{"a scraper", none, metrics, "/metrics", "200 # HELP "},
		{"a scraper", none, metrics, "/pods", forbidden("metrics", "pods proxy")},
		{"a reader of pods", none, pods, "/pods", `200 {"kind":"PodList"`},
		{"a reader of pods", none, pods, "/exec/default/a/c", forbidden("pods", "proxy")},
		{"who has the old right", none, all, "/pods/", `200 {"kind":"PodList"`},
		{"who has the old right", none, all, "/healthz/ping", "200 ok"},
		{"who has the old right", none, all, "/exec/default/a/c?output=1", "404 pod does not exist"},
		{"who has the old right", none, all, "/exec/default/a/c", "400 you must specify at least 1 of stdin, stdout, stderr"},
		{"who has the old right", none, all, "/attach/default/a/c", "400 you must specify at least 1 of stdin, stdout, stderr"},
		{"who has the old right", none, all, "/portForward/default/a?port=80,0", "400 invalid port \"0\""},
		{"who has the old right", none, all, "/statusz", forbidden("all", "statusz")},
		{"who has the old right", none, all, "/flagz", forbidden("all", "configz")},
		{"who has the old right", none, all, "/debug/pprof/cmdline", "200 "},
		{"a reader of what the agent is", none, zpages, "/statusz", "200 kubelet statusz\nWarning: "},
		{"a reader of what the agent is", none, zpages, "/flagz", "404 "}, // nobody has told it anything
		{"a reader of what the agent is", none, zpages, "/configz", `200 {"kubeletconfig":`},
		{"who has the old right", none, all, "/metrics", forbidden("all", "metrics")},
	} {
		if got := b.ask(c.client, http.MethodGet, c.path, c.token); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: GET %s: got %.200s, want %s", c.who, c.path, got, c.want)
		}
	}
	want := "403 Forbidden (user=system:serviceaccount:default:all, verb=create, resource=nodes, subresource(s)=[proxy])"
	if got := b.ask(none, http.MethodPost, "/run/default/a/c?cmd=id", all); got != want {
		t.Errorf("who may only read: POST /run: got %s, want %s", got, want)
	}
}

func TestNodeAgentsPortShowsTheNodesCertificate(t *testing.T) {
	b := newPortBed(t)
	roots := b.s.pki.CA.Pool()
	for _, name := range []string{"n1", "127.0.0.1", "localhost"} {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", b.s.o.Agent.Port), &tls.Config{RootCAs: roots, ServerName: name})
		if err != nil {
			t.Errorf("as %s: %v", name, err)
			continue
		}
		leaf := conn.ConnectionState().PeerCertificates[0].Subject
		if leaf.CommonName != "system:node:n1" || len(leaf.Organization) != 1 || leaf.Organization[0] != "system:nodes" {
			t.Errorf("subject: got %s", leaf)
		}
		conn.Close()
	}
}

func TestNodeSaysWhereItsAgentIsServed(t *testing.T) {
	b := newPortBed(t)
	if got := b.served().Status.DaemonEndpoints.KubeletEndpoint.Port; got != int32(b.s.o.Agent.Port) {
		t.Errorf("got port %d, want %d", got, b.s.o.Agent.Port)
	}
}

// caughtUp waits until the server's cache shows a Node as it was written.
func (b *portBed) caughtUp(node *corev1.Node) {
	b.Helper()
	rev, err := strconv.ParseInt(node.ResourceVersion, 10, 64)
	b.must(err)
	b.must(client.Cached(b.s.plane.Admin(), core.Nodes, "").WaitRev(b.Context(), rev))
}

// elsewhere is the server as one on another machine, which is not the node's own.
func (b *portBed) elsewhere() nodes {
	o := b.s.o
	o.NodeName = "control-plane"
	far := nodes{&server{o: o, pki: b.s.pki, plane: b.s.plane, tunnels: b.s.tunnels}}
	far.s.at.set(o.addresses())
	far.s.ways = reach.New(far.ways)
	return far
}

func TestAPIServerReachesAgentsOfOtherMachinesByTheirPorts(t *testing.T) {
	trace.Proves(t, "COMM-014")
	b := newPortBed(t)
	b.served()
	far := b.elsewhere()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return far.DialNode(ctx, "n1")
	}}}
	for method, paths := range map[string][]string{
		http.MethodGet:  {"/containerLogs/default/a/c", "/attach/default/a/c?output=1", "/portForward/default/a"},
		http.MethodPost: {"/exec/default/a/c?command=id&output=1"},
	} {
		for _, path := range paths {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://n1"+path, nil)
			b.must(err)
			res, err := c.Do(r)
			b.must(err)
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || res.StatusCode != 404 || string(body) != "pod does not exist" {
				t.Errorf("%s %s: got %d %s, want that the agent does not know the pod", method, path, res.StatusCode, body)
			}
		}
	}
	if _, err := far.DialNode(t.Context(), "n2"); err == nil || err.Error() != "node n2 is not registered" {
		t.Errorf("a node that is not there: got %v", err)
	}
}

func TestAPIServerBelievesNoOtherCertificateThanTheNodes(t *testing.T) {
	b := newPortBed(t)
	stranger, err := pki.Ensure(pki.Options{Dir: t.TempDir()})
	b.must(err)
	foreign, err := stranger.NodeServing("n9", []string{"127.0.0.1"})
	b.must(err)
	other, err := b.s.pki.NodeServing("n8", []string{"127.0.0.1"}) // of this cluster, but another node's
	b.must(err)
	for what, pair := range map[string]pki.Pair{"another cluster's": foreign, "another node's": other} {
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair.TLS()}})
		b.must(err)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 2 {
				if conn, err := l.Accept(); err == nil {
					_ = conn.(*tls.Conn).HandshakeContext(t.Context()) // it is to fail, the first time
					conn.Close()
				}
			}
		})
		_, err = client.For(b.s.plane.Admin(), core.Nodes).Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n9"}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		node, err := client.For(b.s.plane.Admin(), core.Nodes).Patch(t.Context(), "", "n9", "status", client.Patch{
			Type: types.MergePatchType,
			Data: fmt.Appendf(nil, `{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"nodeInfo":{"kubeletVersion":%q},"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`,
				version.Git(), l.Addr().(*net.TCPAddr).Port),
		})
		b.must(err)
		b.caughtUp(node)
		if conn, err := b.elsewhere().DialNode(t.Context(), "n9"); err == nil || !strings.Contains(err.Error(), "reach the agent of node n9: tls: failed to verify certificate") {
			t.Errorf("%s certificate: got %v, %v", what, conn, err)
		}
		conn, err := b.elsewhere().DialNode(tunnel.Unverify(t.Context()), "n9")
		if err != nil {
			t.Errorf("%s certificate, where that does not matter: got %v", what, err)
		} else {
			conn.Close()
		}
		l.Close()
		wg.Wait()
	}
}

func TestPortThatIsTakenIsNamed(t *testing.T) {
	b := newPortBed(t)
	err := b.servePort()
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("serve the node agent's API: listen tcp 127.0.0.1:%d: bind: address already in use", b.s.o.Agent.Port)) ||
		!strings.Contains(err.Error(), "--port") {
		t.Errorf("got %v, want the port and its flag named", err)
	}
}
