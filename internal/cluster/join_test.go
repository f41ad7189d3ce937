package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/wait"
)

// joinBed is a server whose API is served.
type joinBed struct {
	*portBed
	url string
}

func newJoinBed(t *testing.T, with ...func(*Options)) *joinBed {
	t.Helper()
	b := &joinBed{portBed: newPortBed(t, with...)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	b.url = "https://" + l.Addr().String()
	b.s.o.SecurePort = l.Addr().(*net.TCPAddr).AddrPort().Port()
	config, err := b.s.handshake()
	b.must(err)
	b.g.Go("serve", func(ctx context.Context) error { return b.s.plane.Server().Serve(ctx, l, config) })
	b.g.Go("access of nodes", b.s.access.Run)
	b.must(b.s.publish(t.Context()))
	return b
}

// client is one of client-go's that trusts the cluster.
func (b *joinBed) client(c rest.Config) kubernetes.Interface {
	b.Helper()
	c.Host, c.QPS, c.TLSClientConfig.CAData = b.url, -1, b.s.pki.CA.CertPEM()
	k, err := kubernetes.NewForConfig(&c)
	b.must(err)
	return k
}

// token makes a bootstrap token that is good for an hour.
func (b *joinBed) token(id string, data map[string]string) string {
	b.Helper()
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id}, Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id": []byte(id), "token-secret": []byte("0123456789abcdef"), "expiration": []byte(time.Now().Add(time.Hour).Format(time.RFC3339)),
			"usage-bootstrap-authentication": []byte("true"), "usage-bootstrap-signing": []byte("true"),
		},
	}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	_, err := client.For(b.s.plane.Admin(), core.Secrets).Create(b.Context(), s)
	b.must(err)
	return id + ".0123456789abcdef"
}

// certificate requests a node's client certificate and returns it once it is
// signed.
func (b *joinBed) certificate(k kubernetes.Interface, name, node string) rest.TLSClientConfig {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	b.must(err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	b.must(err)
	requests := k.CertificatesV1().CertificateSigningRequests()
	_, err = requests.Create(b.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	b.must(err)
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
	defer cancel()
	w, err := requests.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	b.must(err)
	defer w.Stop()
	for e := range w.ResultChan() {
		if r, ok := e.Object.(*certificatesv1.CertificateSigningRequest); ok && len(r.Status.Certificate) > 0 {
			der, err := x509.MarshalECPrivateKey(key)
			b.must(err)
			return rest.TLSClientConfig{CertData: r.Status.Certificate, KeyData: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})}
		}
	}
	b.Fatalf("request %s is not signed", name)
	return rest.TLSClientConfig{}
}

// TestMachineJoinsWithABootstrapToken goes the way of a new machine: it reads
// cluster-info, which the token has signed, as nobody, gets a certificate with the
// token, registers with that, and gets the next certificate with the first.
func TestMachineJoinsWithABootstrapToken(t *testing.T) {
	trace.Proves(t, "COMM-004", "COMM-005")
	b := newJoinBed(t)
	token := b.token("abcdef", nil)

	// It cannot know the cluster's certificate yet.
	nobody, err := kubernetes.NewForConfig(&rest.Config{Host: b.url, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	b.must(err)
	var info *corev1.ConfigMap
	for info == nil || info.Data["jws-kubeconfig-abcdef"] == "" {
		info, err = nobody.CoreV1().ConfigMaps("kube-public").Get(t.Context(), "cluster-info", metav1.GetOptions{})
		b.must(err)
	}
	said, err := clientcmd.Load([]byte(info.Data["kubeconfig"]))
	b.must(err)
	want := fmt.Sprintf("https://192.0.2.1:%d", b.s.o.SecurePort)
	if c := said.Clusters[""]; c == nil || c.Server != want || string(c.CertificateAuthorityData) != string(b.s.pki.CA.CertPEM()) {
		t.Errorf("cluster-info says %+v; want %s and the cluster's CA", c, want)
	}

	joining := b.client(rest.Config{BearerToken: token})
	if _, err := joining.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("nodes, with the token: got %v, want forbidden", err)
	}
	first := b.certificate(joining, "first", "n2")
	node := b.client(rest.Config{TLSClientConfig: first})
	if _, err := node.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("register with the certificate: %v", err)
	}
	b.certificate(node, "next", "n2")
}

// TestBootstrapTokensThatAreNotGood asks with tokens that are over, that are for
// something else, or that are none.
func TestBootstrapTokensThatAreNotGood(t *testing.T) {
	b := newJoinBed(t)
	for name, token := range map[string]string{
		"over":        b.token("aaaaaa", map[string]string{"expiration": "2020-01-01T00:00:00Z"}),
		"for signing": b.token("bbbbbb", map[string]string{"usage-bootstrap-authentication": "false"}),
		"wrong":       strings.Replace(b.token("cccccc", nil), "0123", "3210", 1),
		"unknown":     "dddddd.0123456789abcdef",
	} {
		if _, err := b.client(rest.Config{BearerToken: token}).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: got %v, want unauthorized", name, err)
		}
	}
	pair, err := b.s.pki.CA.Issue(pki.Subject{Name: "system:bootstrap:abcdef", Organizations: []string{"system:bootstrappers"}, Client: true})
	b.must(err)
	key, err := pair.KeyPEM()
	b.must(err)
	other := b.client(rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: pair.CertPEM(), KeyData: key}})
	if _, err := other.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("secrets, as one who joins: got %v, want forbidden", err)
	}
}

// TestTokensAreMadeListedAndRevoked does what the commands of the administrator do.
func TestTokensAreMadeListedAndRevoked(t *testing.T) {
	b := newJoinBed(t)
	a := b.access()
	made, err := up.CreateToken(t.Context(), a, up.TokenOptions{Life: time.Hour, Uses: 2, Server: true, Description: "rack 7"})
	b.must(err)
	other, err := up.CreateToken(t.Context(), a, up.TokenOptions{})
	b.must(err)
	token, err := join.ParseToken(made.Token)
	b.must(err)
	if want := pki.Pin(b.s.pki.CA.Cert); token.ID != made.ID || token.Pin != want {
		t.Errorf("token %s of pin %s, want ID %s and the pin of the authority, %s", token.ID, token.Pin, made.ID, want)
	}
	if want := []string{fmt.Sprintf("https://192.0.2.1:%d", b.s.o.SecurePort)}; !slices.Equal(made.Servers, want) {
		t.Errorf("servers %v, want %v", made.Servers, want)
	}
	groups := b.whoami(token.Bearer())
	if !slices.Contains(groups, "system:bootstrappers:kemudi:servers") {
		t.Errorf("who shows the token is of %v, want of those who become servers", groups)
	}
	list, err := up.Tokens(t.Context(), a)
	b.must(err)
	shown, err := json.Marshal(list)
	b.must(err)
	if strings.Contains(string(shown), token.Secret) {
		t.Errorf("the list shows a secret: %s", shown)
	}
	byID := map[string]up.TokenState{}
	for _, s := range list {
		byID[s.ID] = s
	}
	if s := byID[made.ID]; s.For != "server" || s.Uses != 2 || s.UsesLeft == nil || *s.UsesLeft != 2 || s.Description != "rack 7" ||
		s.Expires == nil || time.Until(*s.Expires) > time.Hour || time.Until(*s.Expires) < 50*time.Minute {
		t.Errorf("the list says %+v of a token for two servers and an hour", s)
	}
	if s, ok := byID[other.ID]; !ok || s.For != "agent" || s.Uses != 0 || s.UsesLeft != nil || s.Expires != nil {
		t.Errorf("the list says %+v of a token for any number of agents, for ever", s)
	}
	b.must(up.RevokeToken(t.Context(), a, made.ID))
	wait.Until(t, func() error { // until the server has heard of it
		_, err := b.client(rest.Config{BearerToken: token.Bearer()}).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("asking with a token that was revoked: got %w, want unauthorized", err)
		}
		return nil
	})
	if err := up.RevokeToken(t.Context(), a, made.ID); err == nil || !strings.Contains(err.Error(), "kemudi token list") {
		t.Errorf("revoked again: got %v, want what there is to do", err)
	}
	if _, err := up.Tokens(t.Context(), up.Access{DataDir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("where there is no server: got %v, want what there is to do", err)
	}
}

// access is the administrator's, by a file.
func (b *joinBed) access() up.Access {
	b.Helper()
	file := filepath.Join(b.TempDir(), "admin.kubeconfig")
	b.must(b.s.pki.WriteAdminKubeconfig(file, "kemudi", b.url))
	return up.Access{Kubeconfig: file}
}

// whoami are the groups of who shows a token.
func (b *joinBed) whoami(token string) []string {
	b.Helper()
	review, err := b.client(rest.Config{BearerToken: token}).AuthenticationV1().SelfSubjectReviews().Create(b.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	b.must(err)
	return review.Status.UserInfo.Groups
}
