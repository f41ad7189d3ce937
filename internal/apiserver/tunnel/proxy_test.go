package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/trace"
)

// site is a network with one web server, which is at every address that is dialled.
type site struct {
	t       *testing.T
	tunnels *Tunnels
	objects map[string]resource.Object
	slices  []*cache.Item
	server  string        // its address
	dialled []string      // and on which nodes that is said to be
	closed  chan struct{} // a token for each connection that the web server has seen end
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, objects: map[string]resource.Object{}, closed: make(chan struct{}, 100)}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			s.closed <- struct{}{}
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	s.tunnels = New(Options{
		Slices: func(string, string) []*cache.Item { return s.slices }, Logger: slog.New(slog.DiscardHandler),
		Pod: func(namespace, name string) *cache.Item {
			if pod, ok := s.objects[name].(*corev1.Pod); ok && pod.Namespace == namespace {
				return &cache.Item{Object: pod}
			}
			return nil
		},
		Nodes: s,
	})
	s.server = server.Listener.Addr().String()
	t.Cleanup(s.tunnels.Close)
	return s
}

func (*site) DialNode(context.Context, string) (net.Conn, error) { return nil, errors.New("no agents") }

func (s *site) DialAddress(ctx context.Context, node, address string) (net.Conn, error) {
	if node != "" {
		node += " "
	}
	s.dialled = append(s.dialled, node+address)
	return (&net.Dialer{}).DialContext(ctx, "tcp", s.server)
}

func (s *site) Get(_ context.Context, name string) (resource.Object, error) {
	if obj, ok := s.objects[name]; ok {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("things"), name)
}

func (*site) MayCreate(*http.Request) error { return nil }

func (*site) Admit(context.Context, runtime.Object) error { return nil }

func (*site) Fail(w http.ResponseWriter, _ *http.Request, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.Error(w, status.Status().Message, int(status.Status().Code))
}

// ask proxies a request for /x and returns what comes back.
func (s *site) ask(def *resource.Def, name string) string {
	s.t.Helper()
	w := httptest.NewRecorder()
	path := "/api/v1/" + def.Plural + "/" + name + "/proxy/x"
	s.tunnels.Proxy(&Request{W: w, R: httptest.NewRequestWithContext(s.t.Context(), "GET", path, nil), Def: def, Name: name, Below: "/x", API: s})
	body, err := io.ReadAll(w.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", w.Code, strings.TrimSpace(string(body)))
}

func (s *site) pod(namespace, name string, ips ...string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, ip := range ips {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		pod.Status.PodIP = ips[0]
	}
	s.objects[name] = pod
}

func TestProxyReachesOnlyAddressesBeyondThisMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, tc := range []struct{ ip, want string }{
		{"10.1.2.3", "200 /x"},
		{"fd00::1", "200 /x"},
		{"", "400 address not allowed"},
		{"127.0.0.1", "400 address not allowed"},
		{"127.8.0.1", "400 address not allowed"},
		{"::1", "400 address not allowed"},
		{"::ffff:127.0.0.1", "400 address not allowed"},
		{"0.0.0.0", "400 address not allowed"},
		{"::", "400 address not allowed"},
		{"169.254.169.254", "400 address not allowed"},
		{"fe80::1", "400 address not allowed"},
		{"fe80::1%eth0", "400 address not allowed"},
		{"224.0.0.1", "400 address not allowed"},
		{"ff01::1", "400 address not allowed"},
		{"ff02::1", "400 address not allowed"},
		{"255.255.255.255", "400 address not allowed"},
		{"localhost", "400 address not allowed"},
		{"pods.example.com", "400 address not allowed"},
	} {
		s.pod("default", "pod", tc.ip)
		s.objects["node"] = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: tc.ip}}},
		}
		for name, def := range map[string]*resource.Def{"pod:8080": core.Pods.Def, "pod": core.Pods.Def, "node:8080": core.Nodes.Def} {
			if got := s.ask(def, name); got != tc.want {
				t.Errorf("%s at %q: got %s, want %s", name, tc.ip, got, tc.want)
			}
		}
	}
}

// TestProxyWantsNumbersAsPortsOfPodsAndNodes asks for ports that are none, of which no URL can be made.
func TestProxyWantsNumbersAsPortsOfPodsAndNodes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.pod("default", "pod", "10.1.2.3")
	s.objects["node"] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.2.4"}}},
	}
	for _, port := range []string{"web", "-1", "65536", "80%20"} {
		for name, def := range map[string]*resource.Def{"pod": core.Pods.Def, "https:pod": core.Pods.Def, "node": core.Nodes.Def} {
			if got, want := s.ask(def, name+":"+port), fmt.Sprintf("400 invalid port %q", port); got != want {
				t.Errorf("port %q of %s: got %s, want %s", port, name, got, want)
			}
		}
	}
}

func TestServiceIsProxiedToItsPodsAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.objects["web"] = &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
	s.pod("default", "own", "10.0.0.1", "fd00::1")
	s.pod("other", "foreign", "10.0.0.2")
	s.pod("default", "odd", "127.0.0.1")
	ref := func(kind, namespace, name string) *corev1.ObjectReference {
		return &corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name}
	}
	const none = `503 no endpoints available for service "web"`
	for _, tc := range []struct {
		name, address string
		ref           *corev1.ObjectReference
		want          string
	}{
		{"a pod's address", "10.0.0.1", ref("Pod", "default", "own"), "200 /x"},
		{"a pod's second address", "fd00::1", ref("Pod", "default", "own"), "200 /x"},
		{"an address that the pod has not", "10.0.0.2", ref("Pod", "default", "own"), none},
		{"no pod", "10.0.0.1", nil, none},
		{"a pod that is not there", "10.0.0.1", ref("Pod", "default", "gone"), none},
		{"a pod elsewhere", "10.0.0.2", ref("Pod", "other", "foreign"), none},
		{"something that is no pod", "10.0.0.1", ref("Node", "default", "own"), none},
		{"this machine", "127.0.0.1", ref("Pod", "default", "odd"), none},
		{"a name", "localhost", ref("Pod", "default", "own"), none},
	} {
		s.slices = []*cache.Item{{Object: &discoveryv1.EndpointSlice{
			Ports:     []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{tc.address}, TargetRef: tc.ref}},
		}}}
		s.dialled = nil
		if got := s.ask(core.Services.Def, "web:http"); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
		if want := tc.want != none; len(s.dialled) > 0 != want {
			t.Errorf("%s: got connections to %v, want any: %v", tc.name, s.dialled, want)
		}
		s.tunnels.Close() // or the next would need none
	}
}

func TestProxyKeepsConnectionsByTheirTargets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.pod("default", "a", "10.0.0.1")
	s.pod("default", "b", "10.0.0.2")
	for range 5 {
		for _, name := range []string{"a:80", "b:80", "a:81"} {
			if got := s.ask(core.Pods.Def, name); got != "200 /x" {
				t.Fatalf("%s: got %s", name, got)
			}
		}
	}
	if got, want := fmt.Sprint(s.dialled), "[10.0.0.1:80 10.0.0.2:80 10.0.0.1:81]"; got != want {
		t.Errorf("connections made by 15 requests: got %s, want %s", got, want)
	}
	s.tunnels.Close()
	for range s.dialled { // none outlives the tunnels
		<-s.closed
	}
}

func TestProxySaysOnWhichNodeItsTargetIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i, name := range []string{"a", "b"} {
		s.pod("default", name, fmt.Sprintf("10.0.%d.1", i))
		s.objects[name].(*corev1.Pod).Spec.NodeName = "node-" + name
	}
	s.objects["web"] = &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
	s.slices = []*cache.Item{{Object: &discoveryv1.EndpointSlice{
		Ports:     []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.1.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "b"}}},
	}}}
	s.objects["node-c"] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-c"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.3"}}},
	}
	for name, def := range map[string]*resource.Def{"a:80": core.Pods.Def, "web:80": core.Services.Def, "node-c:9100": core.Nodes.Def} {
		if got := s.ask(def, name); got != "200 /x" {
			t.Errorf("%s: got %s", name, got)
		}
	}
	slices.Sort(s.dialled)
	if got, want := fmt.Sprint(s.dialled), "[node-a 10.0.0.1:80 node-b 10.0.1.1:8080 node-c 192.0.2.3:9100]"; got != want {
		t.Errorf("got connections to %s, want %s", got, want)
	}
}

// TestProxyOverTLSNeitherVerifiesNorShowsCertificates has a server with a certificate that
// nobody vouches for.
func TestProxyOverTLSNeitherVerifiesNorShowsCertificates(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	secured := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s, %d certificates, authorization %q", r.URL.Path, len(r.TLS.PeerCertificates), r.Header.Get("Authorization"))
	}))
	secured.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	secured.StartTLS()
	t.Cleanup(secured.Close)
	s.objects["node-c"] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-c"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.3"}}},
	}
	trace.Proves(t, "COMM-018/nodes")
	if got := s.ask(core.Nodes.Def, "node-c:9100"); got != "200 /x" {
		t.Errorf("over plain HTTP: got %s", got)
	}
	s.tunnels.Close()
	s.server = secured.Listener.Addr().String()
	trace.Proves(t, "COMM-019/nodes", "COMM-020/no-credentials")
	if got, want := s.ask(core.Nodes.Def, "https:node-c:9100"), `200 /x, 0 certificates, authorization ""`; got != want {
		t.Errorf("over TLS: got %s, want %s", got, want)
	}
}
