package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/dialback"
	"github.com/kemudi/kemudi/internal/task"
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
	got, err := ask(func(ctx context.Context) (net.Conn, error) { return far.byTunnel(ctx, "n1") }, "/containerLogs/default/a/c")
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
