package ingress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// pairOf is a certificate that signs itself, with its key, in PEM.
func pairOf(t *testing.T) (chain, key []byte) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"a.com"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, own.Public(), own)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs})
}

func TestBackendsAreKnownAsAnnotationsSay(t *testing.T) {
	chain, key := pairOf(t)
	w := newWorld()
	w.web(t, "web", "")
	w.secrets["team/all"] = &corev1.Secret{Data: map[string][]byte{"ca.crt": chain, "tls.crt": chain, "tls.key": key}}
	w.secrets["team/ca"] = &corev1.Secret{Data: map[string][]byte{"ca.crt": chain}}
	w.secrets["team/bad"] = &corev1.Secret{Data: map[string][]byte{"ca.crt": []byte("x")}}
	w.secrets["team/half"] = &corev1.Secret{Data: map[string][]byte{"tls.crt": chain}}
	const prefix = "annotation nginx.ingress.kubernetes.io/"
	shut := `{"protocol":"https","deny":["0.0.0.0/0","::/0"]}`
	for _, tc := range []struct{ annotations, want, problems string }{
		{"proxy-ssl-verify: 'on'\nproxy-ssl-secret: ca\nproxy-ssl-name: a.com", `{"protocol":"https","trust":{"name":"a.com","authorities":"CA"}}`, ""},
		{"proxy-ssl-verify: 'on'\nproxy-ssl-secret: team/all\nproxy-ssl-name: A.com\nproxy-ssl-verify-depth: '2'", `{"protocol":"https","trust":{"name":"a.com","authorities":"CA","certificate":"team/all"}}`, ""},
		{"proxy-ssl-verify: 'on'\nproxy-ssl-name: a.com", `{"protocol":"https","trust":{"name":"a.com"}}`, ""},
		{"proxy-ssl-secret: all\nproxy-ssl-name: a.com", `{"protocol":"https","trust":{"name":"","certificate":"team/all","unknown":true}}`, ""},
		{"proxy-ssl-name: a.com\nproxy-ssl-server-name: 'on'", `{"protocol":"https","trust":{"name":"a.com","unknown":true}}`, ""},
		{"proxy-ssl-secret: ca\nproxy-ssl-name: a.com", `{"protocol":"https"}`, ""},
		{"proxy-ssl-verify: 'on'\nproxy-ssl-secret: ca", shut, prefix + "proxy-ssl-secret is not obeyed: proxy-ssl-name does not say whose certificate it must be: nobody is let in"},
		{"proxy-ssl-verify: 'on'\nproxy-ssl-secret: gone\nproxy-ssl-name: a.com", shut, prefix + `proxy-ssl-secret is not obeyed: secret "gone" does not exist: nobody is let in`},
		{"proxy-ssl-verify: 'on'\nproxy-ssl-secret: other/ca\nproxy-ssl-name: a.com", shut, prefix + "proxy-ssl-secret is not obeyed: it names no secret of the Ingress's own namespace: nobody is let in"},
		{"proxy-ssl-verify: 'on'\nproxy-ssl-secret: bad\nproxy-ssl-name: a.com", shut, prefix + `proxy-ssl-secret is not obeyed: secret "bad": it has no certificate in its key ca.crt: nobody is let in`},
		{"proxy-ssl-secret: half", `{"protocol":"https"}`, prefix + `proxy-ssl-secret is not obeyed: secret "half": it has not both tls.crt and tls.key`},
		{"proxy-ssl-verify: 'true'", `{"protocol":"https"}`, prefix + `proxy-ssl-verify is not obeyed: "true" is neither on nor off`},
		{"proxy-ssl-name: 'a b'", `{"protocol":"https"}`, prefix + `proxy-ssl-name is not obeyed: "a b" is no host`},
		{"backend-protocol: HTTP\nproxy-ssl-verify: 'on'\nproxy-ssl-name: a.com", "null", ""},
	} {
		i := parse[networkingv1.Ingress](t, "metadata: {namespace: team, name: i}\nspec: {}")
		i.Annotations = map[string]string{"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}
		for key, value := range *parse[map[string]string](t, tc.annotations) {
			i.Annotations["nginx.ingress.kubernetes.io/"+key] = value
		}
		c := Compile(i, w)
		if got := strings.ReplaceAll(show(t, c.Site.Options), base64.StdEncoding.EncodeToString(chain), "CA"); got != tc.want {
			t.Errorf("%q: got %s, want %s", tc.annotations, got, tc.want)
		}
		if got := problemsOf(c); got != tc.problems {
			t.Errorf("%q: got problems %q, want %q", tc.annotations, got, tc.problems)
		}
		if name := i.Annotations["nginx.ingress.kubernetes.io/proxy-ssl-secret"]; name == "all" && !slices.Contains(c.Secrets, "team/all") {
			t.Errorf("%q: its Secrets are %s", tc.annotations, fmt.Sprint(c.Secrets))
		}
	}
}
