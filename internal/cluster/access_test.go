package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// late is a store whose changes are told of later than they were made: what comes while others are waited with
// waits twice.
type late struct {
	store.Store
	by time.Duration
}

func (l late) Watch(ctx context.Context, prefix string, after int64, fn func([]store.Change, int64) error) error {
	return l.Store.Watch(ctx, prefix, after, func(changes []store.Change, progress int64) error {
		if err := task.Sleep(ctx, l.by); err != nil {
			return err
		}
		return fn(changes, progress)
	})
}

// gate is a control plane at whose API nodes show their certificates.
type gate struct {
	plane  *plane.Plane
	access *authn.NodeAccess
}

func newGate(t *testing.T, g *task.Group, host string, st store.Store, clients *x509.CertPool) *gate {
	t.Helper()
	b := &gate{}
	var err error
	b.plane, err = plane.New(plane.Options{
		Store: st, Shared: true, Host: host, Logger: slog.New(slog.DiscardHandler),
		Serving: func(o *apiserver.Options, caches *watchcache.Set) error {
			b.access = authn.NewNodeAccess(caches.Cache(core.Nodes.Def), caches.Cache(certificates.CertificateSigningRequests.Def), caches.Fresh)
			o.Authenticator, o.While = authn.New(authn.Options{ClientCA: clients, Nodes: b.access}), b.access.While
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	g.Go("control plane of "+host, b.plane.Run)
	g.Go("access of nodes at "+host, b.access.Run)
	if err := await(g, b.plane.Ready()); err != nil {
		t.Fatal(err)
	}
	return b
}

// asked is the code with which the API answers who shows a certificate, as soon as it has said all.
func (b *gate) asked(ctx context.Context, leaf *x509.Certificate, path string) int {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, HandshakeComplete: true}
	w := httptest.NewRecorder()
	b.plane.Server().Handler().ServeHTTP(w, r)
	return w.Code
}

// TestDeletedNodeLosesItsAccessToEachServer within 5 seconds: its watches end and it is refused, also where the
// deletion was not made and is heard of late.
func TestDeletedNodeLosesItsAccessToEachServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const within, lag = 5 * time.Second, 2 * time.Second
		authority, err := pki.NewAuthority("cluster")
		if err != nil {
			t.Fatal(err)
		}
		leaves := map[string]*x509.Certificate{}
		for _, name := range []string{"n2", "n3"} {
			pair, err := authority.Issue(pki.Subject{Name: "system:node:" + name, Organizations: []string{"system:nodes"}, Client: true})
			if err != nil {
				t.Fatal(err)
			}
			leaves[name] = pair.Cert
		}
		st := mem.New(mem.Options{})
		g := task.NewGroup(t.Context())
		here, there := newGate(t, g, "here", st, authority.Pool()), newGate(t, g, "there", late{st, lag}, authority.Pool())
		nodes := client.For(here.plane.Admin(), core.Nodes)
		for name, leaf := range leaves {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{authn.AnnotationNodeKeys: pki.Pin(leaf)}}}
			if _, err := nodes.Create(t.Context(), node); err != nil {
				t.Fatal(err)
			}
		}
		gates := map[string]*gate{"here": here, "there": there}
		ended := map[string]chan time.Time{}
		for where, b := range gates {
			for name, leaf := range leaves {
				if code := b.asked(t.Context(), leaf, "/api/v1/nodes/"+name); code != http.StatusOK {
					t.Fatalf("%s %s: got %d of a node that is there", where, name, code)
				}
				end := make(chan time.Time, 1)
				ended[where+" "+name] = end
				g.Go("watch of "+name, func(ctx context.Context) error {
					b.asked(ctx, leaf, "/api/v1/nodes?watch=1&timeoutSeconds=3600&fieldSelector=metadata.name%3D"+name)
					end <- time.Now()
					return nil
				})
			}
		}
		time.Sleep(time.Minute) // the watches have begun
		deleted := time.Now()
		if err := nodes.Delete(t.Context(), "", "n2", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(within)
		synctest.Wait()
		for where, b := range gates {
			select {
			case at := <-ended[where+" n2"]:
				t.Logf("%s: the watch ended after %s", where, at.Sub(deleted))
			default:
				t.Errorf("%s: a watch of the deleted node goes on", where)
			}
			select {
			case <-ended[where+" n3"]:
				t.Errorf("%s: a watch of the other node has ended", where)
			default:
			}
			for _, what := range []string{"/api/v1/nodes/n2", "/api/v1/nodes/n2?resourceVersion=0", "/api/v1/services?resourceVersion=0"} {
				if code := b.asked(t.Context(), leaves["n2"], what); code != http.StatusUnauthorized {
					t.Errorf("%s: %s: got %d of the deleted node, want %d", where, what, code, http.StatusUnauthorized)
				}
			}
			if code := b.asked(t.Context(), leaves["n3"], "/api/v1/nodes/n3"); code != http.StatusOK {
				t.Errorf("%s: got %d of the other node", where, code)
			}
		}
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}
