package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/dialback"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/reach"
	"github.com/kemudi/kemudi/internal/reach/ssh"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// serveAPI serves the API as to other machines until the test ends, and returns its URL.
func (b *portBed) serveAPI() string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	b.g.Go("serve", func(ctx context.Context) error {
		return b.s.plane.Server().Serve(ctx, l, &tls.Config{GetCertificate: b.s.pki.ServingCertificate})
	})
	return "https://" + l.Addr().String()
}

// tunnelOf keeps a tunnel of a node to the API, by the node's certificate, until the test
// ends. The node's agent is at an address.
func (b *portBed) tunnelOf(node, url, agent string) {
	b.Helper()
	pair, err := b.s.pki.NodeClient(node)
	b.must(err)
	cert := pair.TLS()
	a, err := dialback.NewAgent(dialback.AgentOptions{
		NodeName: node, CA: b.s.pki.CA.Pool(), Certificate: func() (*tls.Certificate, error) { return &cert, nil },
		Scope: dialback.Scope{NodeAgent: agent, Pods: func() []netip.Prefix { return nil }},
	})
	b.must(err)
	a.SetServers([]string{url})
	g := task.NewGroup(b.Context())
	g.Go("tunnel", a.Run)
	b.Cleanup(func() {
		g.Cancel(context.Canceled)
		b.must(g.Wait())
	})
	b.must(b.s.tunnels.Wait(b.Context(), node))
}

func TestAPIServerReachesAgentsByTheirTunnels(t *testing.T) {
	b := newPortBed(t)
	b.served()
	url, far := b.serveAPI(), b.elsewhere()
	port := fmt.Sprintf("127.0.0.1:%d", b.s.o.Agent.Port)
	ask := func(dial func(ctx context.Context) (net.Conn, error), path string) (string, error) {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx)
		}}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node"+path, nil)
		b.must(err)
		res, err := c.Do(r)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return fmt.Sprintf("%d %s", res.StatusCode, body), err
	}

	b.tunnelOf("n1", url, port)
	alone := b.elsewhere()
	alone.s.ways = reach.New(func(reach.Target) []reach.Way { return []reach.Way{{Name: "by its tunnel", Dial: alone.tunnel}} })
	got, err := ask(func(ctx context.Context) (net.Conn, error) { return alone.DialNode(ctx, "n1") }, "/containerLogs/default/a/c")
	if err != nil || got != "404 pod does not exist" {
		t.Errorf("the node agent, by its tunnel: got %q, %v, want that it does not know the pod", got, err)
	}

	// Nodes that say nowhere where their agents are: there is no other way to them.
	for _, name := range []string{"n8", "n9"} {
		node, err := client.For(b.s.plane.Admin(), core.Nodes).Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		b.must(err)
		b.caughtUp(node)
	}
	dial := func(name string) func(ctx context.Context) (net.Conn, error) {
		return func(ctx context.Context) (net.Conn, error) { return far.DialNode(ctx, name) }
	}
	if _, err := ask(dial("n9"), "/healthz"); err == nil || !strings.Contains(err.Error(), "node n9 does not say where its agent is served") {
		t.Errorf("without a tunnel: got %v", err)
	}
	pair, err := b.s.pki.NodeServing("n9", nil)
	b.must(err)
	n9 := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	n9.TLS = &tls.Config{Certificates: []tls.Certificate{pair.TLS()}, ClientAuth: tls.RequireAnyClientCert}
	n9.StartTLS()
	defer n9.Close()
	b.tunnelOf("n9", url, n9.Listener.Addr().String())
	if got, err := ask(dial("n9"), "/healthz"); err != nil || got != "200 "+b.s.pki.KubeletClient.Cert.Subject.CommonName {
		t.Errorf("by the tunnel alone: got %q, %v, want that the server shows its certificate", got, err)
	}
	b.tunnelOf("n8", url, port) // whose end is the agent of n1
	if got, err := ask(dial("n8"), "/healthz"); err == nil || !strings.Contains(err.Error(), "certificate is valid for") {
		t.Errorf("a tunnel that leads to another node's agent: got %q, %v", got, err)
	}
}

// TestTunnelsAreForTheirNodesCertificates asks as others do, by every step from the
// connection to the authorizers.
func TestTunnelsAreForTheirNodesCertificates(t *testing.T) {
	b := newPortBed(t)
	url := b.serveAPI()
	n2, err := b.s.pki.NodeClient("n2")
	b.must(err)
	admin, err := b.s.pki.Admin()
	b.must(err)
	for who, c := range map[string]*http.Client{"another node": b.as(n2.TLS()), "the administrator": b.as(admin.TLS()), "nobody": b.as()} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+dialback.Path("n1"), nil)
		b.must(err)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "kemudi-tunnel/1")
		res, err := c.Do(r)
		b.must(err)
		res.Body.Close()
		if res.StatusCode != 403 || b.s.tunnels.Has("n1") {
			t.Errorf("%s: got %s, want 403", who, res.Status)
		}
	}
}

// TestServerReachesNodesByTheirTunnelsToAnother has a node whose agent keeps a tunnel to one
// server, and another server that has to do with it.
func TestServerReachesNodesByTheirTunnelsToAnother(t *testing.T) {
	b := newPortBed(t)
	url := b.serveAPI()
	pair, err := b.s.pki.NodeServing("n9", nil)
	b.must(err)
	b.foreign("n9", pair.TLS())
	node, ok := client.Cached(b.s.plane.Admin(), core.Nodes, "").Get("", "n9")
	if !ok {
		t.Fatal("there is no node n9")
	}
	b.tunnelOf("n9", url, b.s.o.Kubelets.address(node))

	far := b.elsewhere()
	far.s.tunnels, err = dialback.NewRegistry(far.s.o.Logger)
	b.must(err)
	to := reach.Target{Node: "n9"}
	secured, err := far.secure(to, node)
	b.must(err)
	raw, err := far.peers().Dial(t.Context(), url, "n9", asked(to))
	b.must(err)
	conn := tls.Client(raw, secured)
	defer conn.Close()
	_, err = fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n")
	b.must(err)
	answer, err := io.ReadAll(conn)
	if want := b.s.pki.KubeletClient.Cert.Subject.CommonName; err != nil || !strings.HasSuffix(string(answer), want) {
		t.Errorf("by another server: got %q, %v, want that the agent sees %s", answer, err, want)
	}
	if _, err := far.peers().Dial(t.Context(), url, "n1", asked(to)); !errors.Is(err, dialback.ErrNoTunnel) {
		t.Errorf("a node that has none there either: got %v", err)
	}

	n2, err := b.s.pki.NodeClient("n2")
	b.must(err)
	for who, c := range map[string]*http.Client{"a node": b.as(n2.TLS()), "nobody": b.as()} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+dialback.RelayPath("n9")+"?to=10.0.0.1:80", nil)
		b.must(err)
		res, err := c.Do(r)
		b.must(err)
		res.Body.Close()
		if res.StatusCode != 403 {
			t.Errorf("%s asks a server to connect: got %s, want 403", who, res.Status)
		}
	}
}

// TestServerThatHasJustStartedWaitsForTunnels asks for a node whose agent opens its tunnel later.
func TestServerThatHasJustStartedWaitsForTunnels(t *testing.T) {
	b := newPortBed(t)
	pair, err := b.s.pki.NodeServing("n9", nil)
	b.must(err)
	b.foreign("n9", pair.TLS())
	node, ok := client.Cached(b.s.plane.Admin(), core.Nodes, "").Get("", "n9")
	if !ok {
		t.Fatal("there is no node n9")
	}
	far := b.elsewhere()
	_, err = far.tunnel(t.Context(), reach.Target{Node: "n9"})
	if !errors.Is(err, dialback.ErrNoTunnel) {
		t.Errorf("some time after the start: got %v", err)
	}
	far.s.backBy = time.Now().Add(wait.Patience)
	var wg sync.WaitGroup
	wg.Go(func() {
		conn, err := far.tunnel(t.Context(), reach.Target{Node: "n9"})
		if err != nil {
			t.Errorf("just after the start: got %v", err)
			return
		}
		conn.Close()
	})
	b.tunnelOf("n9", b.serveAPI(), b.s.o.Kubelets.address(node))
	wg.Wait()
}

func TestWaysToNodesFollowFromWhoIsThere(t *testing.T) {
	b := newPortBed(t)
	far := b.elsewhere()
	names := func(kind reach.Kind) string {
		var list []string
		for _, way := range far.ways(reach.Target{Node: "n9", Kind: kind}) {
			list = append(list, way.Name)
		}
		return strings.Join(list, ", ")
	}
	want := func(kind reach.Kind, want string) {
		t.Helper()
		if got := names(kind); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	want(reach.Agent, "by the network")
	port, name := int32(6443), "https"
	slice, err := client.For(b.s.plane.Admin(), discovery.EndpointSlices).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}, {Addresses: []string{"192.0.2.2"}}, {Addresses: []string{"192.0.2.3"}}},
	})
	b.must(err)
	rev, err := strconv.ParseInt(slice.ResourceVersion, 10, 64)
	b.must(err)
	b.must(client.Cached(b.s.plane.Admin(), discovery.EndpointSlices, "").WaitRev(t.Context(), rev))
	const others = "by the network, by server https://192.0.2.2:6443, by server https://192.0.2.3:6443"
	want(reach.Agent, others) // and not by itself, which is at 192.0.2.1
	want(reach.Pod, others)
	b.tunnelOf("n9", b.serveAPI(), "127.0.0.1:1")
	want(reach.Agent, "by the network, by its tunnel")
	want(reach.Host, "by the network, by its tunnel")
	want(reach.Pod, "by its tunnel, by the network") // this server has no node, and so no way to pods of its own
	far.s.o.Network.PodNetwork = podnet.None
	want(reach.Pod, "by the network, by its tunnel")
	far.s.tunnels, err = dialback.NewRegistry(far.s.o.Logger)
	b.must(err)
	far.s.backBy = time.Now().Add(time.Hour) // it has just been started
	want(reach.Pod, "by the network, by its tunnel, by server https://192.0.2.2:6443, by server https://192.0.2.3:6443")
	far.s.ssh = &ssh.Tunnels{}
	want(reach.Pod, "by SSH")
}
