package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/dialback"
	"github.com/kemudi/kemudi/internal/task"
)

// byTunnel reaches all agents by their tunnels.
type byTunnel struct{ *dialback.Registry }

func (b byTunnel) DialNode(ctx context.Context, node string) (net.Conn, error) {
	return b.Dial(ctx, node, dialback.NodeAgent)
}

func (b byTunnel) DialAddress(ctx context.Context, node, address string) (net.Conn, error) {
	return b.Dial(ctx, node, address)
}

// TestNodesAgentAloneOpensItsTunnel opens one as the agent does, over TLS, after
// others have tried to, and uses it for what goes to the node.
func TestNodesAgentAloneOpensItsTunnel(t *testing.T) {
	registry, err := dialback.NewRegistry(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var who atomic.Pointer[user.DefaultInfo]
	who.Store(admin)
	f := newFixture(t, func(o *Options) {
		o.Tunnels, o.Nodes = registry, byTunnel{registry}
		o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: who.Load()}, true, nil
		})
	})
	makeNode(t, f, "n1")
	path := dialback.Path("n1")
	for what, u := range map[string]*user.DefaultInfo{
		"the administrator":      admin,
		"another node":           {Name: "system:node:n2", Groups: []string{user.NodesGroup}},
		"who only has the name":  {Name: "system:node:n1"},
		"who only has the group": {Name: "n1", Groups: []string{user.NodesGroup}},
	} {
		who.Store(u)
		w := f.ask("GET", path, "", "Connection: Upgrade", "Upgrade: kemudi-tunnel/1")
		if w.Code != 403 || !strings.Contains(w.Body.String(), `only the agent of node \"n1\" opens its tunnel`) {
			t.Errorf("%s: got %d %s", what, w.Code, w.Body)
		}
	}
	own := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup}}
	who.Store(own)
	if w := f.ask("GET", path, ""); w.Code != 400 || !strings.Contains(w.Body.String(), "kemudi-tunnel/1") {
		t.Errorf("without an upgrade: got %d %s", w.Code, w.Body)
	}

	url := f.url()
	agentAPI := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.URL.Path)
		if r.URL.Path == "/containerLogs/default/web/c" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done() // the log goes on
		}
	}))
	defer agentAPI.Close()
	roots := x509.NewCertPool()
	roots.AddCert(f.http.TLS.Certificates[0].Leaf)
	agent, err := dialback.NewAgent(dialback.AgentOptions{
		NodeName: "n1", CA: roots, Certificate: func() (*tls.Certificate, error) { return &tls.Certificate{}, nil },
		Scope: dialback.Scope{NodeAgent: agentAPI.Listener.Addr().String(), Pods: func() []netip.Prefix { return nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	agent.SetServers([]string{url})
	g := task.NewGroup(t.Context())
	g.Go("agent", agent.Run)
	defer func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}()
	if err := registry.Wait(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	who.Store(admin)
	placedPod(t, f, "web")
	if got := f.must(200, "GET", "/api/v1/nodes/n1/proxy/healthz", ""); got != "/healthz" {
		t.Errorf("by the tunnel: got %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/namespaces/default/pods/web/log?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	line := make([]byte, len("/containerLogs/default/web/c"))
	if _, err := io.ReadFull(res.Body, line); err != nil || string(line) != "/containerLogs/default/web/c" {
		t.Errorf("a log that goes on, by the tunnel: got %q, %v", line, err)
	}
	cancel() // and the agent's handler ends, or closing its server would wait for ever
}
