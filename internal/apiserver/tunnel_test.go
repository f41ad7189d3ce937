package apiserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
)

// agents are the agents of all nodes: one web server.
type agents struct {
	server *httptest.Server
	made   atomic.Int32 // connections
}

func (a *agents) DialNode(ctx context.Context, _ string) (net.Conn, error) {
	a.made.Add(1)
	return (&net.Dialer{}).DialContext(ctx, "tcp", a.server.Listener.Addr().String())
}

func (a *agents) DialAddress(ctx context.Context, _, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// withAgents starts a server whose nodes' agents answer with h.
func withAgents(t *testing.T, h http.HandlerFunc) (*fixture, *agents) {
	t.Helper()
	a := &agents{server: httptest.NewServer(h)}
	t.Cleanup(a.server.Close)
	return newFixture(t, func(o *Options) { o.Nodes = a }), a
}

func makeNode(t *testing.T, f *fixture, name string) {
	t.Helper()
	if _, err := client.For(f.As(admin, "test"), core.Nodes).Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// placedPod is a running pod on node n1.
func placedPod(t *testing.T, f *fixture, name string) {
	t.Helper()
	pod := runningPod(t, f, name)
	_, err := client.For(f.As(admin, "test"), core.Pods).Post(t.Context(), "default", name, "binding", &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestProxyPathIsWhatFollowsTheSubresource(t *testing.T) {
	f, _ := withAgents(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.RequestURI()) })
	for _, name := range []string{"n1", "proxy", "proxy-1"} {
		makeNode(t, f, name)
		for below, want := range map[string]string{
			"/": "/", "/pods": "/pods", "/pods/": "/pods/", "/a/proxy/b": "/a/proxy/b", "/logs/x?tail=1": "/logs/x?tail=1", "/a//b": "/a//b", "/a%20b": "/a%20b",
		} {
			if got := f.must(200, "GET", "/api/v1/nodes/"+name+"/proxy"+below, ""); got != want {
				t.Errorf("node %s, %s: got %s, want %s", name, below, got, want)
			}
		}
		if w := f.ask("GET", "/api/v1/nodes/"+name+"/proxy?a=b", ""); w.Code != 301 || !strings.HasSuffix(w.Header().Get("Location"), "/nodes/"+name+"/proxy/?a=b") {
			t.Errorf("node %s without a path: got %d to %q, want 301 with a slash", name, w.Code, w.Header().Get("Location"))
		}
	}
}

func TestConnectionsToNodeAgentsAreKept(t *testing.T) {
	f, a := withAgents(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	makeNode(t, f, "n1")
	placedPod(t, f, "web")
	for range 5 {
		f.must(200, "GET", "/api/v1/nodes/n1/proxy/healthz", "")
		f.must(200, "GET", "/api/v1/namespaces/default/pods/web/log", "")
	}
	if got := a.made.Load(); got != 1 {
		t.Errorf("connections made by 10 requests: got %d, want 1", got)
	}
}

func TestLogOverWebSocketIsComplete(t *testing.T) {
	const text = "all of it"
	f, _ := withAgents(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(text))) // the end is known together with the last byte
		io.WriteString(w, text)
	})
	placedPod(t, f, "web")
	url := "ws" + strings.TrimPrefix(f.url(), "http") + "/api/v1/namespaces/default/pods/web/log"
	dialer := websocket.Dialer{TLSClientConfig: f.http.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}
	dialer.TLSClientConfig.NextProtos = []string{"http/1.1"}
	for _, tc := range []struct {
		protocol, want string
		code           int
	}{
		{"", text, 101}, {"binary.k8s.io", text, 101}, {"base64.binary.k8s.io", "YWxsIG9mIGl0", 101}, {"chat", "", 400},
	} {
		if dialer.Subprotocols = nil; tc.protocol != "" {
			dialer.Subprotocols = []string{tc.protocol}
		}
		conn, res, err := dialer.DialContext(t.Context(), url, nil)
		if res == nil || res.StatusCode != tc.code {
			t.Fatalf("subprotocol %q: got %v, %v, want %d", tc.protocol, res, err, tc.code)
		}
		if err != nil {
			continue // it was not to be served
		}
		var got strings.Builder
		for {
			_, data, err := conn.ReadMessage()
			if err != nil {
				break // it has ended
			}
			got.Write(data)
		}
		conn.Close()
		if got.String() != tc.want {
			t.Errorf("subprotocol %q: got %q, want %q", tc.protocol, got.String(), tc.want)
		}
	}
}

func TestTerminalHasNoStandardErrorOfItsOwn(t *testing.T) {
	f, _ := withAgents(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, r.URL.RequestURI(), http.StatusTeapot) // what is asked for, in place of a stream
	})
	placedPod(t, f, "web")
	upgrade := []string{"Connection: Upgrade", "Upgrade: SPDY/3.1"}
	for query, want := range map[string]string{
		"exec?command=id&stdout=1&stderr=1&tty=1": "418 /exec/default/web/c?command=id&output=1&tty=1",
		"exec?command=id&stdout=1&stderr=1":       "418 /exec/default/web/c?command=id&error=1&output=1",
		"attach?stdin=1&stderr=1&tty=1":           "418 /attach/default/web/c?input=1&tty=1",
		"attach?stderr=1&tty=1":                   "400 you must specify at least 1 of stdin, stdout, stderr",
	} {
		w := hijackable(t, f, "/api/v1/namespaces/default/pods/web/"+query, upgrade)
		if !strings.HasPrefix(w, want[:4]) || !strings.Contains(w, want[4:]) {
			t.Errorf("%s: got %s, want %s", query, w, want)
		}
	}
}

func TestWebSocketsToPodsNeedTheRightToCreate(t *testing.T) {
	a := &agents{server: httptest.NewServer(http.NotFoundHandler())}
	t.Cleanup(a.server.Close)
	f := newFixture(t, func(o *Options) {
		o.Nodes = a
		o.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if slices.Contains([]string{"exec", "attach", "portforward"}, a.GetSubresource()) && a.GetVerb() != "get" {
				return authorizer.DecisionNoOpinion, "", nil
			}
			return authorizer.DecisionAllow, "", nil
		})
	})
	placedPod(t, f, "web")
	for sub, query := range map[string]string{"exec": "?command=id&stdout=1", "attach": "?stdout=1", "portforward": ""} {
		got := f.must(403, "GET", "/api/v1/namespaces/default/pods/web/"+sub+query, "", "Connection: Upgrade", "Upgrade: websocket")
		if want := fmt.Sprintf(`User \"admin\" cannot create resource \"pods/%s\" in API group \"\" in the namespace \"default\"`, sub); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", sub, got, want)
		}
	}
	f.must(200, "GET", "/api/v1/namespaces/default/pods/web", "")
}

func TestPodThatIsNowhereHasNoLog(t *testing.T) {
	f, a := withAgents(t, func(http.ResponseWriter, *http.Request) {})
	runningPod(t, f, "early")
	if got := f.must(204, "GET", "/api/v1/namespaces/default/pods/early/log", ""); got != "" || a.made.Load() != 0 {
		t.Errorf("got %q, and %d connections to agents", got, a.made.Load())
	}
}

func TestStreamsEndWhenTheServerStops(t *testing.T) {
	began := make(chan struct{})
	f, _ := withAgents(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, in, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		close(began)
		io.Copy(io.Discard, in) // until the server ends it
	})
	placedPod(t, f, "web")
	ctx, stop := context.WithCancel(t.Context())
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- f.Serve(ctx, l, &tls.Config{Certificates: []tls.Certificate{certificate(t)}}) }()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /api/v1/namespaces/default/pods/web/attach?stdout=1 HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	<-began
	stop()
	if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "EOF") && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the client sees %v, want the end", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// hijackable asks over a connection of its own, as clients do whose streams are
// to take it over, and returns code and body of the answer.
func hijackable(t *testing.T, f *fixture, path string, headers []string) string {
	t.Helper()
	plain := httptest.NewServer(f.Handler())
	defer plain.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, plain.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	res, err := plain.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", res.StatusCode, body)
}
