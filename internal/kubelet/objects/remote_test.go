package objects

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/auth"
	"github.com/kemudi/kemudi/internal/auth/node"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
	until "github.com/kemudi/kemudi/test/wait"
)

// distant is an API server that lets a node see what its pods name and no more, and the
// objects that the node's agent finds there over HTTPS.
type distant struct {
	*testing.T
	admin    client.Transport
	registry *prometheus.Registry
	objects  *Objects
	group    *task.Group // of the agent
}

func newDistant(t *testing.T) *distant {
	t.Helper()
	d := &distant{T: t, registry: prometheus.NewRegistry()}
	o := apiserver.Options{Store: mem.New(mem.Options{}), Defs: api.All(), Registry: d.registry}
	caches, err := watchcache.New(watchcache.Options{Store: o.Store, Defs: o.Defs})
	d.must(err)
	o.Caches = caches
	o.Authorizer = auth.Authorizers(node.New(node.Caches{
		Pods: caches.Cache(core.Pods.Def), Claims: caches.Cache(core.PersistentVolumeClaims.Def), Volumes: caches.Cache(core.PersistentVolumes.Def),
		VolumeAttachments: caches.Cache(storage.VolumeAttachments.Def), PodCertificates: caches.Cache(certificates.PodCertificateRequests.Def),
	}))
	agent := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: agent}, true, nil
	})
	s, err := apiserver.New(o)
	d.must(err)
	d.admin = s.As(&user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}, "suite")
	srv := httptest.NewUnstartedServer(s.Handler())
	srv.EnableHTTP2 = true
	srv.StartTLS()
	remote, err := https.New(https.Options{
		Servers: []string{srv.URL}, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
	})
	d.must(err)
	server := task.NewGroup(t.Context())
	d.group = task.NewGroup(t.Context())
	server.Go("caches", caches.Run)
	server.Go("server", s.Run)
	d.group.Go("remote", remote.Run)
	t.Cleanup(func() {
		for _, g := range []*task.Group{d.group, server} {
			g.Cancel(context.Canceled)
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		}
		srv.Close()
	})
	d.objects = New(remote, slog.New(slog.DiscardHandler))
	_, err = client.For(d.admin, core.Namespaces).Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	d.must(err)
	return d
}

func (d *distant) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// watches is how many watches the server has to serve.
func (d *distant) watches() (n int) {
	d.Helper()
	families, err := d.registry.Gather()
	d.must(err)
	for _, f := range families {
		if f.GetName() == "apiserver_longrunning_requests" {
			for _, m := range f.GetMetric() {
				n += int(m.GetGauge().GetValue())
			}
		}
	}
	return n
}

// secret makes a secret.
func (d *distant) secret(name string) error {
	_, err := client.For(d.admin, core.Secrets).Create(d.Context(), &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"k": []byte(name)},
	})
	return err
}

// pod makes a pod of the node that names a secret.
func (d *distant) pod(name, secret string) (*v1.Pod, error) {
	return client.For(d.admin, core.Pods).Create(d.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1.PodSpec{
			NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: "i"}},
			Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: secret}}}},
		},
	})
}

// live is the life of a short pod: each has a secret of its own, but for every fourth, which
// shares that of the pod that stays. The order of its end differs.
func (d *distant) live(i int) error {
	name := fmt.Sprint("p", i)
	secret := name
	if i%4 == 0 {
		secret = "stays"
	} else if err := d.secret(secret); err != nil {
		return err
	}
	pod, err := d.pod(name, secret)
	if err != nil {
		return err
	}
	d.objects.Follow(d.group, pod, func() {})
	found, err := d.objects.In(d.Context()).Secret("default", secret)
	if err == nil && string(found.Data["k"]) != secret {
		err = fmt.Errorf("secret %s: got %s", secret, found.Data)
	}
	if i%2 == 0 {
		d.objects.Unfollow(pod.UID)
	}
	zero := int64(0)
	err = errors.Join(err, client.For(d.admin, core.Pods).Delete(d.Context(), "default", name, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	if i%2 != 0 {
		d.objects.Unfollow(pod.UID)
	}
	return err
}

// TestPodsThatAreGoneLeaveNoWatches runs many short pods beside one that stays.
func TestPodsThatAreGoneLeaveNoWatches(t *testing.T) {
	t.Parallel()
	d := newDistant(t)
	d.must(d.secret("stays"))
	stays, err := d.pod("stays", "stays")
	d.must(err)
	told := make(chan struct{}, 100)
	d.objects.Follow(d.group, stays, func() { told <- struct{}{} })
	<-told
	const pods = 10_000
	var wg sync.WaitGroup
	for lane := range 4 {
		wg.Go(func() {
			for i := lane; i < pods; i += 4 {
				if err := d.live(i); err != nil {
					t.Errorf("pod %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	until.Until(t, func() error {
		if n := d.watches(); n != 1 {
			return fmt.Errorf("%d watches, want that of the pod which stays", n)
		}
		return nil
	})
	d.objects.mu.Lock()
	used, caches := len(d.objects.mu.used), len(d.objects.mu.caches)
	d.objects.mu.Unlock()
	if used != 1 || caches != 1 {
		t.Errorf("%d objects are followed in %d caches, want one", used, caches)
	}
	d.must(func() error {
		_, err := client.For(d.admin, core.Secrets).Update(t.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stays"}, Data: map[string][]byte{"k": []byte("new")}})
		return err
	}())
	<-told
	d.objects.Unfollow(types.UID("nobody"))
	d.objects.Unfollow(stays.UID)
	until.Until(t, func() error {
		if n := d.watches(); n != 0 {
			return fmt.Errorf("%d watches, want none", n)
		}
		return nil
	})
}

// TestTrustBundlesAreFoundByNameAndBySigner reads bundles as a node that is not a server, and
// is told of their changes.
func TestTrustBundlesAreFoundByNameAndBySigner(t *testing.T) {
	t.Parallel()
	d := newDistant(t)
	bundles := client.For(d.admin, certificates.ClusterTrustBundles)
	set := func(name, signer, tier string) {
		t.Helper()
		_, err := bundles.Create(t.Context(), &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": tier}},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: anAuthority(t)},
		})
		d.must(err)
	}
	const signer = "example.com/signer"
	named := &v1.ClusterTrustBundleProjection{Name: ptr.To("plain")}
	all := &v1.ClusterTrustBundleProjection{SignerName: ptr.To(signer), LabelSelector: &metav1.LabelSelector{}}
	some := &v1.ClusterTrustBundleProjection{SignerName: ptr.To(signer), LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}
	none := &v1.ClusterTrustBundleProjection{SignerName: ptr.To(signer)}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: "i"}}}}
	for i, p := range []*v1.ClusterTrustBundleProjection{named, all} {
		p.Path = "ca"
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i), VolumeSource: v1.VolumeSource{
			Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{ClusterTrustBundle: p}}},
		}})
	}
	pod, err := client.For(d.admin, core.Pods).Create(t.Context(), pod)
	d.must(err)
	for want, p := range map[string]*v1.ClusterTrustBundleProjection{
		`while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "plain" not found`: named,
		"combination of signerName and labelSelector matched zero ClusterTrustBundles":               all,
	} {
		if _, err := d.objects.TrustBundles(t.Context(), p); err == nil || err.Error() != want || !IsMissing(err) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	told := make(chan struct{}, 1)
	d.objects.Follow(d.group, pod, func() {
		select {
		case told <- struct{}{}:
		default: // it has been told
		}
	})
	eventually := func(p *v1.ClusterTrustBundleProjection, want ...string) {
		t.Helper()
		for {
			found, err := d.objects.TrustBundles(t.Context(), p)
			var got []string
			for _, b := range found {
				got = append(got, b.Name)
			}
			slices.Sort(got)
			if slices.Equal(got, want) && (err == nil || IsMissing(err)) {
				return
			}
			select {
			case <-told: // of the change that makes it so
			case <-t.Context().Done():
				t.Fatalf("got %s (%v), want %s", got, err, want)
			}
		}
	}
	set("plain", "", "web")
	eventually(named, "plain")
	set("example.com:signer:a", signer, "web")
	set("example.com:signer:b", signer, "db")
	set("example.com:other:a", "example.com/other", "web")
	eventually(all, "example.com:signer:a", "example.com:signer:b")
	eventually(some, "example.com:signer:a")
	eventually(none)
	d.must(bundles.Delete(t.Context(), "", "example.com:signer:a", metav1.DeleteOptions{}))
	eventually(all, "example.com:signer:b")
	d.objects.Unfollow(pod.UID)
}

// TestCertificatesOfPodsAreAskedFor asks as a node that is not a server, and is told of the answers.
func TestCertificatesOfPodsAreAskedFor(t *testing.T) {
	t.Parallel()
	d := newDistant(t)
	account, err := client.For(d.admin, core.ServiceAccounts).Create(t.Context(), &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot"}})
	d.must(err)
	node, err := client.For(d.admin, core.Nodes).Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	d.must(err)
	p := &v1.PodCertificateProjection{SignerName: "example.com/signer", KeyType: "ECDSAP256", KeyPath: "key", CertificateChainPath: "chain", UserAnnotations: map[string]string{"example.com/a": "b"}}
	pod, err := client.For(d.admin, core.Pods).Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: v1.PodSpec{
		NodeName: "n1", ServiceAccountName: "robot", Containers: []v1.Container{{Name: "c", Image: "i"}},
		Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{PodCertificate: p}}}}}},
	}})
	d.must(err)
	p = pod.Spec.Volumes[0].Projected.Sources[0].PodCertificate
	told := make(chan struct{}, 1)
	d.objects.Follow(d.group, pod, func() {
		select {
		case told <- struct{}{}:
		default: // it has been told
		}
	})
	if _, err := d.objects.CertificateRequest(t.Context(), pod, "none"); !IsMissing(err) {
		t.Errorf("a request that there is not: got %v", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	d.must(err)
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	d.must(err)
	name, err := d.objects.RequestCertificate(t.Context(), pod, p, stub)
	d.must(err)
	requests := client.For(d.admin, certificates.PodCertificateRequests)
	r, err := requests.Get(t.Context(), "default", name)
	d.must(err)
	want := certificatesv1.PodCertificateRequestSpec{
		SignerName: "example.com/signer", PodName: "p", PodUID: pod.UID, ServiceAccountName: "robot", ServiceAccountUID: account.UID,
		NodeName: "n1", NodeUID: node.UID, MaxExpirationSeconds: ptr.To[int32](86400), StubPKCS10Request: stub, UnverifiedUserAnnotations: p.UserAnnotations,
	}
	if !equality.Semantic.DeepEqual(r.Spec, want) || len(r.OwnerReferences) != 1 || r.OwnerReferences[0].UID != pod.UID || !strings.HasPrefix(r.Name, "req-") {
		t.Errorf("got %+v, want %+v", r, want)
	}
	r = r.DeepCopy()
	r.Status.Conditions = []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeDenied, Status: metav1.ConditionTrue, Reason: "No", Message: "no", LastTransitionTime: metav1.Now()}}
	_, err = requests.UpdateStatus(t.Context(), r)
	d.must(err)
	for {
		if seen, err := d.objects.CertificateRequest(t.Context(), pod, name); err == nil && len(seen.Status.Conditions) == 1 {
			break
		}
		select {
		case <-told: // of the change that makes it so
		case <-t.Context().Done():
			t.Fatal("the answer was not told")
		}
	}
	d.objects.Unfollow(pod.UID)
}

// anAuthority is the certificate of a new authority.
func anAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "an authority"}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}
