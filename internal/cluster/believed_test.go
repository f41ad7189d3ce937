package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/auth/trust"
	"github.com/kemudi/kemudi/internal/wholefile"
	"github.com/kemudi/kemudi/test/wait"
)

func TestServerTellsWhomItBelieves(t *testing.T) {
	t.Parallel()
	o := planeOnly(t)
	client, _ := runServer(t, o)
	keys, err := pki.Ensure(pki.Options{Dir: o.DataDir})
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, func() error {
		cm, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), trust.ConfigMap, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for key, want := range map[string]string{
			"client-ca-file": string(keys.CA.CertPEM()), "requestheader-client-ca-file": string(keys.FrontProxyCA.CertPEM()),
			"requestheader-allowed-names": `["front-proxy-client"]`, "requestheader-username-headers": `["X-Remote-User"]`,
			"requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		} {
			if cm.Data[key] != want {
				return fmt.Errorf("%s: got %s, want %s", key, cm.Data[key], want)
			}
		}
		return nil
	})
}

func TestAuthorityOfClientsInAFileIsExchanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys, err := pki.Ensure(pki.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "clients.crt")
	become := func(name string) (*pki.Authority, *x509.Certificate) {
		a, err := pki.NewAuthority(name)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := a.Issue(pki.Subject{Name: "jane", Client: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := wholefile.Private(file, a.Certs()[0].Raw); err != nil { // no PEM: as in the middle of a change
			t.Fatal(err)
		}
		if err := os.WriteFile(file, a.CertPEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		return a, pair.Cert
	}
	_, old := become("first")
	o, err := Options{Machine: Machine{DataDir: dir, NodeIP: netip.MustParseAddr("192.0.2.7")}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	o.alone = &Alone{Keys: pki.Given{ServingCert: filepath.Join(dir, "pki/apiserver.crt"), ServingKey: filepath.Join(dir, "pki/apiserver.key"), ClientCA: file}}
	o.Identity.SigningKey = filepath.Join(dir, "pki/sa.key")
	o.Identity.FrontProxy.CA = filepath.Join(dir, "pki/front-proxy-ca.crt")
	s := newServer(o, addresses{})
	if err := s.keys(t.Context()); err != nil {
		t.Fatal(err)
	}
	chain := s.chain(authn.Options{NoAnonymous: true})
	believes := func(cert *x509.Certificate) error {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		if _, ok, err := chain.AuthenticateRequest(r); !ok {
			return errors.Join(errors.New("nobody is known"), err)
		}
		return nil
	}
	if err := believes(old); err != nil {
		t.Fatal(err)
	}
	second, young := become("second")
	wait.Until(t, func() error { return believes(young) })
	if believes(old) == nil {
		t.Error("the authority that was there before is believed")
	}
	said, err := s.trust()
	if err != nil || len(said.Clients) != 1 || !said.Clients[0].Equal(second.Cert) || len(said.Proxies) != 1 || !said.Proxies[0].Equal(keys.FrontProxyCA.Cert) || len(said.Names) != 0 {
		t.Errorf("what others are told: got %+v, %v", said, err)
	}
}
