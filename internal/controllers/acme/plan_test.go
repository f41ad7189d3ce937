package acme

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
)

func TestHostsOfASecretAreThoseOfAllIngressesThatNameIt(t *testing.T) {
	ingress := func(wants string, hosts []string, tls ...networkingv1.IngressTLS) *networkingv1.Ingress {
		i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{networking.AnnotationACME: wants}}, Spec: networkingv1.IngressSpec{TLS: tls}}
		for _, h := range hosts {
			i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{Host: h})
		}
		return i
	}
	one := ingress("true", []string{"c.example", ""}, networkingv1.IngressTLS{SecretName: "s", Hosts: []string{"B.example", "a.example"}}, networkingv1.IngressTLS{SecretName: "other", Hosts: []string{"d.example"}})
	two := ingress("true", []string{"c.example", ""}, networkingv1.IngressTLS{SecretName: "s"}, networkingv1.IngressTLS{Hosts: []string{"e.example"}})
	var from []asker
	for _, i := range []*networkingv1.Ingress{one, two} {
		from = append(from, asker{object: i, hosts: hostsOf("s", i)})
	}
	if got, want := allHosts(from), []string{"a.example", "b.example", "c.example"}; !slices.Equal(got, want) {
		t.Errorf("got hosts %q, want %q", got, want)
	}
	gone := one.DeepCopy()
	gone.DeletionTimestamp = &metav1.Time{}
	for i, want := range map[*networkingv1.Ingress]string{one: "s other", two: "s", gone: "", ingress("false", nil, two.Spec.TLS...): ""} {
		if got := strings.Join(secretsOf(i), " "); got != want {
			t.Errorf("got Secrets %q, want %q", got, want)
		}
	}
}

func TestCertificatesAreRenewedWhenAThirdOfTheirTimeIsLeft(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begin, NotAfter: begin.Add(90 * time.Hour), DNSNames: []string{"a.example", "b.example"}},
		&x509.Certificate{}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	own, err := encodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	s := &corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), corev1.TLSPrivateKeyKey: own}}
	if at, ok := renewal(s, []string{"a.example"}); !ok || !at.Equal(begin.Add(60*time.Hour)) {
		t.Errorf("got %s, %t, want 60 hours after its begin", at, ok)
	}
	if _, ok := renewal(s, []string{"a.example", "c.example"}); ok {
		t.Error("a certificate is taken that is not for all hosts")
	}
	s.Data[corev1.TLSPrivateKeyKey] = nil
	if _, ok := renewal(s, []string{"a.example"}); ok {
		t.Error("a certificate without a key is taken")
	}
}

func TestWaitsGrow(t *testing.T) {
	for _, c := range []struct {
		failures int
		refused  bool
		want     time.Duration
	}{{1, false, 5 * time.Second}, {2, false, 10 * time.Second}, {50, false, 5 * time.Minute}, {1, true, time.Minute}, {3, true, 4 * time.Minute}, {50, true, 4 * time.Hour}} {
		if got := waitAfter(c.failures, c.refused); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, ""},
		{Options{Server: LetsEncrypt, Email: "a@example.com"}, ""},
		{Options{Server: "https://ca.example/dir", CAFile: "/ca"}, ""},
		{Options{Server: "http://ca.example/dir"}, "--acme-server http://ca.example/dir: want letsencrypt or the URL of a directory, https://..."},
		{Options{Server: "lets-encrypt"}, "--acme-server lets-encrypt: want"},
		{Options{Email: "a@example.com"}, "--acme-email and --acme-ca-file are for an --acme-server"},
		{Options{Server: LetsEncrypt, Email: "A <a@example.com>"}, "--acme-email A <a@example.com>: want an address"},
	} {
		err := c.o.Check()
		if got := err == nil; got != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.o, err, c.want)
		}
	}
}
