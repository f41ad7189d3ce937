package cluster

import (
	"crypto/tls"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/secureport"
)

func TestTheAPIsPortDemandsAndShowsWhatFlagsSay(t *testing.T) {
	ca, err := pki.NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Subject{Name: "front", Hosts: []string{"api.example.com"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	named := secureport.Named{CertFile: write(t, filepath.Join(dir, "crt"), string(pair.CertPEM())), KeyFile: write(t, filepath.Join(dir, "key"), string(key))}
	b := newJoinBed(t, func(o *Options) {
		o.Port.MinVersion, o.Port.Named = tls.VersionTLS13, []secureport.Named{named}
	})
	shake := func(c *tls.Config) (tls.ConnectionState, error) {
		c.InsecureSkipVerify = true
		conn, err := tls.Dial("tcp", strings.TrimPrefix(b.url, "https://"), c)
		if err != nil {
			return tls.ConnectionState{}, err
		}
		defer conn.Close()
		return conn.ConnectionState(), nil
	}
	if _, err := shake(&tls.Config{MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 is taken, want 1.3 at least")
	}
	for name, want := range map[string]string{"api.example.com": "front", "": "kube-apiserver"} {
		state, err := shake(&tls.Config{ServerName: name, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := state.PeerCertificates[0].Subject.CommonName; got != want || state.NegotiatedProtocol != "h2" {
			t.Errorf("%q: got the certificate of %s and %q, want that of %s", name, got, state.NegotiatedProtocol, want)
		}
	}
	if _, err := b.root().Discovery().ServerVersion(); err != nil {
		t.Error(err)
	}
}
