package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

func ensure(t *testing.T, o Options) *PKI {
	t.Helper()
	p, err := Ensure(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func serving(t *testing.T, p *PKI) *x509.Certificate {
	t.Helper()
	c, err := p.ServingCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf
}

func TestEverythingIsMadeOnceAndReadAgain(t *testing.T) {
	dir := t.TempDir()
	first := ensure(t, Options{Dir: dir, Hosts: []string{"10.96.0.1", "machine"}})
	second := ensure(t, Options{Dir: dir, Hosts: []string{"machine"}})
	if !first.CA.Cert.Equal(second.CA.Cert) || !first.FrontProxyCA.Cert.Equal(second.FrontProxyCA.Cert) {
		t.Error("the authorities have changed")
	}
	if !serving(t, first).Equal(serving(t, second)) || !first.KubeletClient.Cert.Equal(second.KubeletClient.Cert) {
		t.Error("certificates have changed")
	}
	if !matches(&x509.Certificate{PublicKey: first.ServiceAccounts.Public()}, second.ServiceAccounts) {
		t.Error("the key of service accounts has changed")
	}
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", path, info.Mode())
		}
		names = append(names, d.Name())
		return err
	})
	want := "apiserver-kubelet-client.crt apiserver-kubelet-client.key apiserver.crt apiserver.key ca.crt ca.key " +
		"front-proxy-ca.crt front-proxy-ca.key front-proxy-client.crt front-proxy-client.key sa.key sa.pub"
	slices.Sort(names)
	if got := strings.Join(names, " "); err != nil || got != want {
		t.Errorf("files: got %s, %v; want %s", got, err, want)
	}
}

func TestServingCertificateFitsItsNames(t *testing.T) {
	p := ensure(t, Options{Dir: t.TempDir(), Hosts: []string{"10.96.0.1", "machine.example"}, Domain: "corp.local"})
	cert := serving(t, p)
	for _, name := range []string{"kubernetes.default.svc", "kubernetes.default.svc.corp.local", "localhost", "127.0.0.1", "10.96.0.1", "machine.example"} {
		_, err := cert.Verify(x509.VerifyOptions{Roots: p.CA.Pool(), DNSName: name, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: p.CA.Pool(), DNSName: "elsewhere"}); err == nil {
		t.Error("certificate fits a name that it does not have")
	}
}

func TestNewNamesAndBrokenFilesMakeANewCertificate(t *testing.T) {
	dir := t.TempDir()
	before := ensure(t, Options{Dir: dir})
	moved := ensure(t, Options{Dir: dir, Hosts: []string{"192.0.2.7"}})
	if serving(t, before).Equal(serving(t, moved)) || serving(t, moved).VerifyHostname("192.0.2.7") != nil {
		t.Error("the certificate was not made for the new address")
	}
	path := filepath.Join(dir, "pki", "apiserver.crt")
	for name, damage := range map[string]func() error{
		"lost":              func() error { return os.Remove(path) },
		"cut off":           func() error { return os.WriteFile(path, serving(t, moved).Raw[:100], 0o600) },
		"of another key":    func() error { return os.WriteFile(path, before.KubeletClient.CertPEM(), 0o600) },
		"its key made anew": func() error { return os.Remove(filepath.Join(dir, "pki", "apiserver.key")) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		p := ensure(t, Options{Dir: dir})
		c, _ := p.ServingCertificate(nil)
		if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: p.CA.Pool()}); err != nil || !matches(c.Leaf, c.PrivateKey.(crypto.Signer)) {
			t.Errorf("%s: %v, or the key does not fit", name, err)
		}
	}
}

func TestBrokenAuthorityIsRefused(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"key lost": func(dir string) error { return os.Remove(filepath.Join(dir, "pki", "ca.key")) },
		"key of another": func(dir string) error {
			data, err := os.ReadFile(filepath.Join(dir, "pki", "sa.key"))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "pki", "ca.key"), data, 0o600)
		},
		"no PEM": func(dir string) error { return os.WriteFile(filepath.Join(dir, "pki", "ca.crt"), []byte("x"), 0o600) },
	} {
		dir := t.TempDir()
		ensure(t, Options{Dir: dir})
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := Ensure(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "ca.") {
			t.Errorf("%s: got %v, want an error that names the file", name, err)
		}
	}
}

func TestCertificatesAreRenewedBeforeTheyEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := ensure(t, Options{Dir: dir})
		first, last := serving(t, p), serving(t, p)
		for day := range 3 * 365 {
			if err := p.Renew(); err != nil {
				t.Fatal(err)
			}
			now := serving(t, p)
			if left := time.Until(now.NotAfter); left < 100*24*time.Hour {
				t.Fatalf("day %d: the certificate is good for only %s", day, left)
			}
			last = now
			time.Sleep(24 * time.Hour)
		}
		if first.Equal(last) {
			t.Error("the certificate was never renewed")
		}
		if _, err := last.Verify(x509.VerifyOptions{Roots: p.CA.Pool(), CurrentTime: time.Now()}); err != nil {
			t.Error(err)
		}
	})
}

func TestAdminKubeconfigWorksAndIsKept(t *testing.T) {
	dir := t.TempDir()
	p := ensure(t, Options{Dir: dir})
	path := filepath.Join(dir, "admin.conf")
	write := func(server string) []byte {
		if err := p.WriteAdminKubeconfig(path, "kemudi", server); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	data := write("https://127.0.0.1:6443")
	if string(write("https://127.0.0.1:6443")) != string(data) {
		t.Error("a good file was written again")
	}
	if string(write("https://192.0.2.1:6443")) == string(data) {
		t.Error("the file was not written for a new server")
	}
	c, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(c.CertData, c.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.CAData) {
		t.Fatal("no authority in the file")
	}
	state := handshake(t, p, &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "127.0.0.1"})
	who := state.PeerCertificates[0].Subject
	if who.CommonName != "kubernetes-admin" || !slices.Equal(who.Organization, []string{"system:masters"}) {
		t.Errorf("the server sees %v", who)
	}
}

// handshake is the server's view of a TLS connection of a client.
func handshake(t *testing.T, p *PKI, client *tls.Config) tls.ConnectionState {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	srv := tls.Server(a, &tls.Config{GetCertificate: p.ServingCertificate, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: p.CA.Pool()})
	failed := make(chan error, 1)
	go func() { failed <- tls.Client(b, client).HandshakeContext(t.Context()) }()
	if err := srv.HandshakeContext(t.Context()); err != nil {
		t.Fatalf("server: %v", err)
	}
	if err := <-failed; err != nil {
		t.Fatalf("client: %v", err)
	}
	return srv.ConnectionState()
}

func TestNodeCertificates(t *testing.T) {
	p := ensure(t, Options{Dir: t.TempDir()})
	client, err := p.NodeClient("n1")
	if err != nil {
		t.Fatal(err)
	}
	if s := client.Cert.Subject; s.CommonName != "system:node:n1" || !slices.Equal(s.Organization, []string{"system:nodes"}) {
		t.Errorf("client: got %v", s)
	}
	server, err := p.NodeServing("n1", []string{"192.0.2.9"})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{"n1", "192.0.2.9"} {
		if err := server.Cert.VerifyHostname(h); err != nil {
			t.Error(err)
		}
	}
	again, err := p.Pair("kube-proxy", Subject{Name: "system:kube-proxy", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	if same, err := p.Pair("kube-proxy", Subject{Name: "system:kube-proxy", Client: true}); err != nil || !same.Cert.Equal(again.Cert) {
		t.Errorf("pair was made twice, %v", err)
	}
}

func BenchmarkEnsureNew(b *testing.B) {
	for b.Loop() {
		if _, err := Ensure(Options{Dir: b.TempDir()}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestServersHaveTheSameAuthoritiesAndKeysOfTheirOwn(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	first := ensure(t, Options{Dir: dir})
	if _, err := os.Stat(filepath.Join(dir, "pki", "peer-ca.key")); err == nil {
		t.Error("a single server has an authority for others")
	}
	if _, err := first.Peers(); err != nil {
		t.Fatal(err)
	}
	pin, err := PeerPin(other) // which it asks with
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(Options{Dir: other, Joined: true}); err == nil || !strings.Contains(err.Error(), "not all there") {
		t.Errorf("without the keys of the others: got %v", err)
	}
	files, err := first.Shared()
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteShared(other, files); err != nil {
		t.Fatal(err)
	}
	second := ensure(t, Options{Dir: other, Joined: true})
	if !first.CA.Cert.Equal(second.CA.Cert) || !first.FrontProxyCA.Cert.Equal(second.FrontProxyCA.Cert) {
		t.Error("the authorities are not the same")
	}
	if !matches(&x509.Certificate{PublicKey: first.ServiceAccounts.Public()}, second.ServiceAccounts) {
		t.Error("the keys of service accounts are not the same")
	}
	a, b := peerCert(t, first), peerCert(t, second)
	if got, err := PinOf(b.PublicKey); err != nil || got != pin || Pin(a) == pin {
		t.Errorf("the second server is known by %s, %v; want %s, and that the first is not", got, err, pin)
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := b.Verify(x509.VerifyOptions{Roots: first.peers.Load().Pool(), DNSName: PeerName, KeyUsages: []x509.ExtKeyUsage{use}})
		if err != nil {
			t.Errorf("use %v: %v", use, err)
		}
	}
	if _, err := b.Verify(x509.VerifyOptions{Roots: first.CA.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		t.Error("the cluster's authority vouches for who may write the store")
	}
	if err := os.Remove(filepath.Join(other, "pki", "peer-ca.crt")); err != nil {
		t.Fatal(err)
	}
	if p, err := Ensure(Options{Dir: other, Joined: true}); err != nil {
		t.Error(err)
	} else if _, err := p.Peers(); err == nil {
		t.Error("a server that has joined makes an authority of its own")
	}
	if err := WriteShared(other, map[string][]byte{"../ca.crt": nil}); err == nil {
		t.Error("a file elsewhere was written")
	}
}

func TestPeerCertificateIsRenewedWhileTheServerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := ensure(t, Options{Dir: t.TempDir()})
		if _, err := p.Peers(); err != nil {
			t.Fatal(err)
		}
		before := peerCert(t, p)
		time.Sleep(leafLife / 2)
		if err := p.Renew(); err != nil {
			t.Fatal(err)
		}
		if !peerCert(t, p).Equal(before) {
			t.Error("it was renewed while it was good")
		}
		time.Sleep(leafLife / 4)
		if err := p.Renew(); err != nil {
			t.Fatal(err)
		}
		after := peerCert(t, p)
		if after.Equal(before) || !after.NotAfter.After(before.NotAfter) || Pin(after) != Pin(before) {
			t.Errorf("it is good until %s, and was until %s; want a later one for the same key", after.NotAfter, before.NotAfter)
		}
	})
}

// peerCert is the certificate that other servers are shown.
func peerCert(t *testing.T, p *PKI) *x509.Certificate {
	t.Helper()
	cert, err := p.files().cert("peer")
	if err != nil || cert == nil {
		t.Fatalf("no certificate for other servers: %v", err)
	}
	return cert
}
