package aggregate_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/api/rbac"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
	"github.com/kemudi/kemudi/test/wait"
)

// bed is a control plane that serves over HTTPS, and whose network has other servers at made-up addresses.
type bed struct {
	t     *testing.T
	plane *plane.Plane
	url   string
	proxy *pki.Authority // of the certificate that the control plane shows to others
	net   network
}

// network leads from addresses of pods to listeners of the test.
type network struct {
	sync.Mutex
	at     map[string]string // listeners by addresses
	dialed []string          // "NODE ADDRESS", in order
}

func (n *network) DialNode(context.Context, string) (net.Conn, error) {
	return nil, errors.New("there are no agents")
}

// DialAddress connects to the listener at an address.
func (n *network) DialAddress(ctx context.Context, node, address string) (net.Conn, error) {
	n.Lock()
	at := n.at[address]
	n.dialed = append(n.dialed, node+" "+address)
	n.Unlock()
	if at == "" {
		return nil, fmt.Errorf("dial tcp %s: connect: no route to host", address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", at)
}

func (n *network) set(address, listener string) {
	n.Lock()
	defer n.Unlock()
	n.at[address] = listener
}

// who says by a header of a request who sends it.
func who(r *http.Request) (*authenticator.Response, bool, error) {
	u := &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	if name := r.Header.Get("From"); name != "" {
		u = &user.DefaultInfo{Name: name, UID: "uid-" + name, Groups: []string{"people", user.AllAuthenticated}, Extra: map[string][]string{"Scopes/of": {"a b"}}}
	}
	return &authenticator.Response{User: u}, true, nil
}

func newBed(t *testing.T, change ...func(o *plane.Options)) *bed {
	t.Helper()
	authority, err := pki.NewAuthority("front-proxy")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.Subject{Name: pki.FrontProxyName, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, proxy: authority}
	b.net.at = map[string]string{}
	shown := pair.TLS()
	o := plane.Options{
		Store: mem.New(mem.Options{}), Logger: slog.New(slog.DiscardHandler),
		ProxyCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil },
		Serving: func(o *apiserver.Options, _ *watchcache.Set) error {
			o.Authenticator, o.Nodes = authenticator.RequestFunc(who), &b.net
			return nil
		},
	}
	for _, f := range change {
		f(&o)
	}
	b.plane, err = plane.New(o)
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(context.WithoutCancel(t.Context()))
	g.Go("control plane", b.plane.Run)
	front := httptest.NewUnstartedServer(b.plane.Server().Handler())
	front.EnableHTTP2 = true
	front.StartTLS()
	b.url = front.URL
	t.Cleanup(func() {
		front.CloseClientConnections()
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		front.Close()
	})
	select {
	case <-b.plane.Ready():
	case <-g.Context().Done():
		t.Fatal(context.Cause(g.Context()))
	}
	return b
}

// client speaks with the control plane by HTTP/1.1 or HTTP/2.
func (b *bed) client() *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	b.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

// reply is an answer that has been read.
type reply struct {
	code   int
	header http.Header
	body   string
}

// ask sends a request, "METHOD PATH"; headers are "Name: value".
func (b *bed) ask(what, body string, headers ...string) reply {
	b.t.Helper()
	method, path, _ := strings.Cut(what, " ")
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	resp, err := b.client().Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(got)}
}

// must is ask for a request that has to be answered with the code.
func (b *bed) must(code int, what, body string, headers ...string) string {
	b.t.Helper()
	got := b.ask(what, body, headers...)
	if got.code != code {
		b.t.Fatalf("%s: got %d %s, want %d", what, got.code, got.body, code)
	}
	return got.body
}

// certificate is what a server of the service "api" in the namespace default serves with, and its authority in
// PEM.
func certificate(t *testing.T, hosts ...string) (tls.Certificate, []byte) {
	t.Helper()
	authority, err := pki.NewAuthority("sample")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.Subject{Name: "sample", Hosts: hosts, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	return pair.TLS(), authority.CertPEM()
}

// sampleHost is the name that the service of the samples has.
const sampleHost = "api.default.svc"

// listen serves h by TLS, and asks for certificates of clients.
func (b *bed) listen(h http.Handler, cert tls.Certificate) string {
	b.t.Helper()
	s := httptest.NewUnstartedServer(h)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(b.proxy.CertPEM())
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.StartTLS()
	b.t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.Listener.Addr().String()
}

// Where the service of the samples is.
const (
	podAddress = "10.9.0.7"
	podPort    = 8443
)

// service makes the service "api", which is served by a pod on node n1.
func (b *bed) service() {
	b.t.Helper()
	create(b, core.Services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "api"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	})
}

// endpoints says where the service is: at addresses, ready or not.
func (b *bed) endpoints(name string, ready bool, addresses ...string) {
	b.t.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "api"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To[int32](podPort), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	create(b, discovery.EndpointSlices, s)
}

// register says that the service has wardle.example.com/v1alpha1.
func (b *bed) register(caBundle []byte, change ...func(s *apiregistrationv1.APIService)) {
	b.t.Helper()
	s := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1alpha1.wardle.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "wardle.example.com", Version: "v1alpha1", GroupPriorityMinimum: 2000, VersionPriority: 200, CABundle: caBundle,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "api"},
		},
	}
	for _, f := range change {
		f(s)
	}
	create(b, apiregistration.APIServices, s)
}

// await waits until the APIService of the samples says what is wanted of whether it is available: "STATUS REASON".
func (b *bed) await(want string, message ...string) {
	b.t.Helper()
	b.awaitOf("v1alpha1.wardle.example.com", want, message...)
	b.until(func() bool { // requests are handed on by what the server has heard of the same
		return (b.ask("GET "+rootPath, "").code == http.StatusServiceUnavailable) != strings.HasPrefix(want, "True")
	})
}

// until waits until it is so: the server hears of an object soon after its client.
func (b *bed) until(so func() bool) {
	b.t.Helper()
	wait.Until(b.t, func() error {
		if !so() {
			return errors.New("it is not so")
		}
		return nil
	})
}

// awaitOf is await for any APIService.
func (b *bed) awaitOf(name, want string, message ...string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	last := ""
	all := client.Cached(b.plane.Admin(), apiregistration.APIServices, "")
	f := all.Follow(cache.FollowOptions{})
	defer f.Close()
	for {
		select {
		case <-f.Ready():
			f.Next()
		case <-ctx.Done():
			b.t.Fatalf("available: got %s, want %s", last, want)
		}
		s, ok := all.Get("", name)
		if !ok {
			continue
		}
		c := apiregistration.Available(s)
		if c == nil {
			continue
		}
		if last = string(c.Status) + " " + c.Reason; last != want {
			last += ": " + c.Message
			continue
		}
		for _, text := range message {
			if !strings.Contains(c.Message, text) {
				b.t.Errorf("message: got %q, want it to contain %q", c.Message, text)
			}
		}
		return
	}
}

// document is what a server of wardle.example.com/v1alpha1 says there is.
func document() *metav1.APIResourceList {
	return &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "wardle.example.com/v1alpha1",
		APIResources: []metav1.APIResource{
			{Name: "flunders", SingularName: "flunder", Namespaced: true, Kind: "Flunder", Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "watch"}, ShortNames: []string{"fl"}},
			{Name: "flunders/log", Namespaced: true, Kind: "Flunder", Verbs: metav1.Verbs{"get"}},
		},
	}
}

// serveDocument answers like a server of the group-version, and leaves other paths to next.
func serveDocument(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis/wardle.example.com/v1alpha1" {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(document()) // an error means that the client has gone
			return
		}
		next(w, r)
	}
}

// sample makes another server part of the API, and returns when it can be used. It answers with next.
func (b *bed) sample(next http.HandlerFunc) {
	b.t.Helper()
	cert, authority := certificate(b.t, sampleHost)
	b.net.set(fmt.Sprintf("%s:%d", podAddress, podPort), b.listen(serveDocument(next), cert))
	b.service()
	b.endpoints("api-1", true, podAddress)
	b.register(authority)
	b.await("True Passed", "all checks passed")
}

// create makes an object as the administrator.
func create[T resource.Object](b *bed, r *resource.Resource[T], obj T) T {
	b.t.Helper()
	made, err := client.For(b.plane.Admin(), r).Create(b.t.Context(), obj)
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

// grant lets a user make flunders.
func grant(b *bed, name string) {
	b.t.Helper()
	create(b, rbac.ClusterRoles, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{"wardle.example.com"}, Resources: []string{"flunders"}}},
	})
	create(b, rbac.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	})
	if err := b.plane.Server().Fresh(b.t.Context()); err != nil { // until it is in force
		b.t.Fatal(err)
	}
}
