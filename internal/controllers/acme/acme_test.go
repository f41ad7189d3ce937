package acme_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controllers/acme"
	"github.com/kemudi/kemudi/internal/controllers/loadbalancer"
	"github.com/kemudi/kemudi/internal/edge"
	"github.com/kemudi/kemudi/internal/edgefeed"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/version"
	"github.com/kemudi/kemudi/internal/watchcache"
	"github.com/kemudi/kemudi/test/asedge"
	"github.com/kemudi/kemudi/test/port"
	"github.com/kemudi/kemudi/test/wait"
)

// TestMain makes this program an edge when it is started as one.
func TestMain(m *testing.M) { asedge.Main(m, "v1") }

func TestWithoutAServerNothingIsOrdered(t *testing.T) { sim.Test(t, "testdata/*.txt") }

// authority is an ACME server, which may be away.
type authority struct {
	*httptest.Server
	caFile string
	ca     *ca.CAImpl
	store  *db.MemoryStore
	away   atomic.Bool
}

// newAuthority has a Pebble whose certificates are good for so long. It finds all hosts on this machine, at a port.
func newAuthority(t *testing.T, at uint16, lifetime time.Duration) *authority {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	l, err := net.Listen("tcp", "127.0.0.1:0") // which is how Pebble asks
	if err != nil {
		t.Fatal(err)
	}
	names := &dns.Server{Listener: l, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		if q := r.Question[0]; q.Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1)})
		}
		_ = w.WriteMsg(m)
	})}
	g := task.NewGroup(t.Context())
	g.Go("names", func(context.Context) error { return names.ActivateAndServe() })
	t.Cleanup(func() {
		_ = names.Shutdown()
		_ = g.Wait()
	})
	quiet, store := log.New(io.Discard, "", 0), db.NewMemoryStore()
	a := &authority{store: store, ca: ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {ValidityPeriod: uint64(lifetime.Seconds())}})}
	front := wfe.New(quiet, store, va.New(quiet, int(at), int(at), true, l.Addr().String(), store), a.ca, []string{"test"}, true, false, 1, 1)
	handler := front.Handler()
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	a.caFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(a.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// turns leads each connection to another one of some ports, as a balancer does.
func turns(t *testing.T, at uint16, to []uint16) (count []*atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(at))))
	if err != nil {
		t.Fatal(err)
	}
	for range to {
		count = append(count, &atomic.Int64{})
	}
	g := task.NewGroup(t.Context())
	g.Go("turns", func(context.Context) error {
		for n := 0; ; n = (n + 1) % len(to) {
			in, err := l.Accept()
			if err != nil {
				return nil
			}
			count[n].Add(1)
			port := to[n]
			g.Go("connection", func(context.Context) error {
				defer in.Close()
				out, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
				if err != nil {
					return nil
				}
				defer out.Close()
				g.Go("there", func(context.Context) error {
					_, _ = io.Copy(out, in)
					return out.(*net.TCPConn).CloseWrite()
				})
				_, _ = io.Copy(in, out)
				return nil
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		_ = g.Wait()
	})
	return count
}

// world is a cluster with nodes that serve Ingresses and Gateways, and an ACME server.
type world struct {
	*testing.T
	cluster *sim.Cluster
	api     client.Transport
	server  *authority
	front   uint16 // where the ACME server asks
	plain   []uint16
	https   []uint16
	asked   []*atomic.Int64
}

// asAdmin lets everybody do everything.
func asAdmin(o *apiserver.Options, _ *watchcache.Set) error {
	o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "test", Groups: []string{user.SystemPrivilegedGroup}}}, true, nil
	})
	return nil
}

// newWorld has two nodes, which the ACME server finds in turns.
func newWorld(t *testing.T, lifetime time.Duration) *world {
	t.Helper()
	w := newNodes(t, lifetime, "a", "b")
	w.asked = turns(t, w.front, w.plain)
	return w
}

func newNodes(t *testing.T, lifetime time.Duration, names ...string) *world {
	t.Helper()
	w := &world{T: t, front: port.Reserve(t)}
	w.server = newAuthority(t, w.front, lifetime)
	c, err := sim.Start(t.Context(), sim.Options{Gateways: true, LoadBalancer: loadbalancer.Options{From: []string{"192.0.2.0/28"}}, Serving: asAdmin, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), ACME: acme.Options{Server: w.server.URL + wfe.DirectoryPath, Email: "admin@example.com", CAFile: w.server.caFile}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	w.cluster, w.api = c, c.API()
	g := task.NewGroup(t.Context())
	for _, name := range names {
		nodes := client.For(w.api, core.Nodes)
		if _, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
		ours := client.Patch{Type: types.MergePatchType, Data: fmt.Appendf(nil, `{"status": {"nodeInfo": {"kubeletVersion": %q}, "conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}`, version.Git())}
		if _, err := nodes.Patch(t.Context(), "", name, "status", ours); err != nil { // controllers write to the node meanwhile
			t.Fatal(err)
		}
		dir, ports := t.TempDir(), edge.Ports{HTTP: port.Reserve(t), HTTPS: port.Reserve(t)}
		w.plain, w.https = append(w.plain, ports.HTTP), append(w.https, ports.HTTPS)
		g.Go("node "+name, edgefeed.New(edgefeed.Options{Transport: w.api, NodeName: name, RunDir: dir, LogFile: filepath.Join(dir, "edge.log"), Ports: ports, Version: "v1"}).Run)
		t.Cleanup(func() {
			if _, err := edgefeed.Reset(context.WithoutCancel(t.Context()), dir); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// ingress wants a certificate for a host, of a Secret of the host's name.
func (w *world) ingress(host string) {
	w.Helper()
	name := strings.Replace(host, "*", "any", 1)
	_, err := client.For(w.api, networking.Ingresses).Create(w.Context(), &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{networking.AnnotationACME: "true"}},
		Spec: networkingv1.IngressSpec{
			TLS: []networkingv1.IngressTLS{{SecretName: name, Hosts: []string{host}}},
			Rules: []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			}}}}}},
		},
	})
	if err != nil {
		w.Fatal(err)
	}
}

// shown is the serial number of the certificate that a node shows for a host, once it is one of the ACME server's.
func (w *world) shown(at uint16, host string) (serial string, _ error) {
	roots := x509.NewCertPool()
	roots.AddCert(w.server.ca.GetRootCert(0).Cert)
	conn, err := tls.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(at))), &tls.Config{ServerName: host, RootCAs: roots})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// served waits until each node shows a certificate of the ACME server's for a host other than one, and returns it.
func (w *world) served(host, other string) (serial string) {
	w.Helper()
	for _, at := range w.https {
		wait.Until(w, func() (err error) {
			if serial, err = w.shown(at, host); err == nil && serial == other {
				err = errors.New("it is still the one before")
			}
			return err
		})
	}
	return serial
}

// event waits until an Ingress has an event.
func (w *world) event(host, reason, text string) {
	w.Helper()
	wait.Until(w, func() error {
		all, err := client.For(w.api, core.Events).List(w.Context(), "default", metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, e := range all {
			if e.InvolvedObject.Name == host {
				got = append(got, e.Reason+" "+e.Message)
			}
			if e.InvolvedObject.Name == host && e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("got events %q, want %s with %q", got, reason, text)
	})
}

// TestIngressesGetCertificatesThatAreRenewed has a Pebble ask two nodes in turns. Its certificates are good for a short time;
// while it is away what there is goes on, and people are told.
func TestIngressesGetCertificatesThatAreRenewed(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.ingress("one.example.com")
	first := w.served("one.example.com", "")
	w.event("one.example.com", "CertificateIssued", "secret \"one.example.com\" has a new certificate for one.example.com")
	w.ingress("two.example.com")
	w.served("two.example.com", "")
	for n := range w.asked {
		if w.asked[n].Load() == 0 {
			t.Errorf("node %d was never asked", n)
		}
	}
	w.served("one.example.com", first)

	w.server.away.Store(true)
	w.ingress("three.example.com")
	w.event("three.example.com", "CertificateFailed", "secret \"three.example.com\" is not filled with a certificate, and it is tried again in 5s or later: ")
	if _, err := w.shown(w.https[0], "two.example.com"); err != nil {
		t.Errorf("while the server is away: %v", err)
	}
	w.server.away.Store(false)
	w.served("three.example.com", "")
}

// TestNobodyElsesSecretsAreFilled has Secrets and hosts that no certificate is ordered for.
func TestNobodyElsesSecretsAreFilled(t *testing.T) {
	w := newWorld(t, time.Hour)
	if _, err := client.For(w.api, core.Secrets).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "own.example.com"}, Type: corev1.SecretTypeOpaque}); err != nil {
		t.Fatal(err)
	}
	w.ingress("own.example.com")
	w.event("own.example.com", "CertificateNotOrdered", "secret \"own.example.com\" is somebody else's")
	w.ingress("*.example.com")
	w.event("any.example.com", "CertificateNotOrdered", "*.example.com cannot be had by a challenge of HTTP: name each host")
	if err := w.server.store.AddBlockedDomain("blocked.example.com"); err != nil {
		t.Fatal(err)
	}
	w.ingress("blocked.example.com")
	w.event("blocked.example.com", "CertificateFailed", "tried again in 1m0s or later: ")
}

// gateway makes a Gateway with listeners, and returns the ports of nodes that it has, by its own.
func (w *world) gateway(name, listeners string) (ports map[int32]uint16) {
	w.Helper()
	w.create("gateways", fmt.Sprintf(`"kind": "Gateway", "metadata": {"name": %q, "annotations": {"kemudi.io/acme": "true"}}, "spec": {"gatewayClassName": "kemudi", "listeners": [%s]}`, name, listeners))
	return w.portsOf(name)
}

// create makes an object of the Gateway API, once its kind is served.
func (w *world) create(plural, body string) {
	w.Helper()
	wait.Until(w, func() error {
		r := httptest.NewRequestWithContext(w.Context(), http.MethodPost, "/apis/gateway.networking.k8s.io/v1/namespaces/default/"+plural,
			strings.NewReader(`{"apiVersion": "gateway.networking.k8s.io/v1", `+body+"}"))
		r.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		w.cluster.Server().Handler().ServeHTTP(answer, r)
		if answer.Code != http.StatusCreated {
			return errors.New(answer.Body.String())
		}
		return nil
	})
}

// portsOf are the ports of nodes that a Gateway has, by its own.
func (w *world) portsOf(name string) (ports map[int32]uint16) {
	w.Helper()
	wait.Until(w, func() error {
		svc, err := client.For(w.api, core.Services).Get(w.Context(), "default", name+"-kemudi")
		if err != nil {
			return err
		}
		ports = map[int32]uint16{}
		for _, p := range svc.Spec.Ports {
			ports[p.Port] = uint16(p.NodePort)
		}
		return nil
	})
	return ports
}

// TestGatewaysGetCertificates has the ACME server ask a node at the port of a Gateway, of which another listener names a
// Secret that is not there.
func TestGatewaysGetCertificates(t *testing.T) {
	w := newNodes(t, time.Hour, "a")
	https := func(name, secret string) string {
		return fmt.Sprintf(`{"name": %q, "port": 443, "protocol": "HTTPS", "hostname": "%s.example.com", "tls": {"certificateRefs": [{"name": %q}]}}`, name, name, secret)
	}
	ports := w.gateway("web", `{"name": "http", "port": 80, "protocol": "HTTP"}, `+https("a", "pair")+", "+https("b", "pair"))
	turns(t, w.front, []uint16{ports[80]})
	w.event("web", "CertificateIssued", "secret \"pair\" has a new certificate for a.example.com, b.example.com")
	for _, host := range []string{"a.example.com", "b.example.com"} {
		wait.Until(w, func() error {
			_, err := w.shown(ports[443], host)
			return err
		})
	}
	w.gateway("far", https("c", "far"))
	w.event("far", "CertificateNotOrdered", "ACME servers ask at port 80, at which the Gateway has no listener of protocol HTTP")
}

// TestListenerSetsGetCertificates has the ACME server ask at a Gateway that wants nothing itself, for a host of a ListenerSet
// that it has taken. One that it does not take waits.
func TestListenerSetsGetCertificates(t *testing.T) {
	w := newNodes(t, time.Hour, "a")
	w.create("gateways", `"kind": "Gateway", "metadata": {"name": "shared"}, "spec": {"gatewayClassName": "kemudi",
		"allowedListeners": {"namespaces": {"from": "Same"}}, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}`)
	w.create("gateways", `"kind": "Gateway", "metadata": {"name": "closed"}, "spec": {"gatewayClassName": "kemudi", "listeners": [{"name": "http", "port": 8080, "protocol": "HTTP"}]}`)
	set := func(name, gateway string) {
		w.create("listenersets", fmt.Sprintf(`"kind": "ListenerSet", "metadata": {"name": %q, "annotations": {"kemudi.io/acme": "true"}}, "spec": {"parentRef": {"name": %q},
			"listeners": [{"name": "tls", "port": 443, "protocol": "HTTPS", "hostname": "%[1]s.example.com", "tls": {"certificateRefs": [{"name": %[1]q}]}}]}`, name, gateway))
	}
	set("mine", "shared")
	ports := w.portsOf("shared")
	turns(t, w.front, []uint16{ports[80]})
	w.event("mine", "CertificateIssued", "secret \"mine\" has a new certificate for mine.example.com")
	wait.Until(w, func() error {
		_, err := w.shown(w.portsOf("shared")[443], "mine.example.com")
		return err
	})
	set("theirs", "closed")
	w.event("theirs", "CertificateNotOrdered", "ACME servers ask at port 80, at which the Gateway has no listener of protocol HTTP")
}
