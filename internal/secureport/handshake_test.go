package secureport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/task"
)

// set is what a port demands by its flags.
func set(args ...string) (Handshake, error) {
	var h Handshake
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	h.AddFlags(f)
	h.AddNamedFlag(f)
	return h, errors.Join(f.Parse(args), h.Check())
}

func TestFlagsOfHandshakesThatCannotBeAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--tls-min-version=VersionTLS11":                            `unknown tls version "VersionTLS11": want VersionTLS12 or VersionTLS13`,
		"--tls-cipher-suites=TLS_NONE":                              "cipher suite TLS_NONE not supported or doesn't exist",
		"--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "--tls-cipher-suites: HTTP/2 needs TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 among them",
		"--tls-curve-preferences=0":                                 "curve preference 0 is out of range (must be 1-65535)",
		"--tls-curve-preferences=-3":                                "curve preference -3 is out of range (must be 1-65535)",
		"--tls-curve-preferences=99999999999999999999":              "curve preference 99999999999999999999 is out of range (must be 1-65535)",
		"--tls-curve-preferences=65535":                             "curve preference 65535 is not supported by the current Go version",
		"--tls-curve-preferences=29,23,29":                          "duplicate curve preference 29",
		"--tls-curve-preferences=X25519":                            `curve preference "X25519": want a number, such as 29 for X25519`,
		"--tls-sni-cert-key=crt":                                    "expected comma separated certificate and key file paths",
		"--tls-sni-cert-key=crt,key,other":                          "expected comma separated certificate and key file paths",
		"--tls-sni-cert-key=,key":                                   "expected comma separated certificate and key file paths, got an empty one",
		"--tls-sni-cert-key=crt,key: ":                              "empty names list is not allowed",
	} {
		if _, err := set(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
	h, err := set("--tls-min-version=VersionTLS13", "--tls-cipher-suites=TLS_AES_128_GCM_SHA256", "--tls-curve-preferences=29, 4588", "--tls-sni-cert-key= a , b :x, *.y", "--tls-sni-cert-key=c,d")
	if err != nil || h.MinVersion != tls.VersionTLS13 || len(h.Curves) != 2 || h.Curves[1] != tls.X25519MLKEM768 {
		t.Errorf("got %+v, %v", h, err)
	}
	if len(h.Named) != 2 || h.Named[0].String() != "a,b:x,*.y" || h.Named[1].String() != "c,d" {
		t.Errorf("got %v", h.Named)
	}
	if _, err := h.Config(nil); err == nil || !strings.HasPrefix(err.Error(), "--tls-sni-cert-key a,b:x,*.y: ") {
		t.Errorf("got %v, want the files that are missing named", err)
	}
}

// certificates are files of certificates, each for some hosts and with its common name.
type certificates struct {
	*testing.T
	ca  *pki.Authority
	dir string
}

func (c certificates) write(file, name string, hosts ...string) string {
	c.Helper()
	pair, err := c.ca.Issue(pki.Subject{Name: name, Hosts: hosts, Server: true})
	if err != nil {
		c.Fatal(err)
	}
	data, err := pair.KeyPEM()
	if err != nil {
		c.Fatal(err)
	}
	crt, key := filepath.Join(c.dir, file+".crt"), filepath.Join(c.dir, file+".key")
	for path, data := range map[string][]byte{crt: pair.CertPEM(), key: data} {
		if err := os.WriteFile(path+".new", data, 0o600); err != nil {
			c.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			c.Fatal(err)
		}
	}
	return crt + "," + key
}

// listening takes connections as h demands it.
func listening(t *testing.T, h Handshake) (at string) {
	t.Helper()
	own, err := ServingCertificate(Serving{Name: "own"})
	if err != nil {
		t.Fatal(err)
	}
	config, err := h.Config(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own() })
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1)) // shakes hands
			conn.Close()
		}
	})
	return l.Addr().String()
}

// shake connects, and returns what was agreed on.
func shake(at string, config *tls.Config) (tls.ConnectionState, error) {
	config.InsecureSkipVerify = true
	conn, err := tls.Dial("tcp", at, config)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	return conn.ConnectionState(), nil
}

func TestClientsGetTheCertificateOfTheNameThatTheyAskFor(t *testing.T) {
	ca, err := pki.NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	c := certificates{t, ca, t.TempDir()}
	h, err := set("--tls-sni-cert-key="+c.write("first", "first", "api.example.com", "*.wide.example.com"),
		"--tls-sni-cert-key="+c.write("second", "second", "ignored.example.com")+":api.example.com,deep.example.com",
		"--tls-sni-cert-key="+c.write("address", "address")+":127.0.0.1,*.*.example.org")
	if err != nil {
		t.Fatal(err)
	}
	wants := func(h Handshake, want map[string]string) {
		t.Helper()
		at := listening(t, h)
		for name, want := range want {
			state, err := shake(at, &tls.Config{ServerName: name})
			if err != nil {
				t.Fatal(err)
			}
			if got := state.PeerCertificates[0].Subject.CommonName; got != want {
				t.Errorf("%q: got the certificate of %s, want %s", name, got, want)
			}
		}
	}
	wants(h, map[string]string{
		"api.example.com": "second", "API.example.com.": "second", "deep.example.com": "second", "x.wide.example.com": "first", "x.y.wide.example.com": "own",
		"ignored.example.com": "own", "first": "first", "a.b.example.org": "address", "b.example.org": "own", "other": "own", "": "address", "127.0.0.1": "address",
	})
	c.write("first", "renewed", "other")
	wants(h, map[string]string{"other": "renewed", "x.wide.example.com": "own"})
	h.Named = h.Named[:2]
	wants(h, map[string]string{"": "own"})
}

func TestAPortTakesWhatItsHandshakeAllows(t *testing.T) {
	h, err := set("--tls-min-version=VersionTLS13", "--tls-curve-preferences=24")
	if err != nil {
		t.Fatal(err)
	}
	at := listening(t, h)
	if _, err := shake(at, &tls.Config{MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 is taken, want 1.3 at least")
	}
	if _, err := shake(at, &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256}}); err == nil {
		t.Error("X25519 and P-256 are taken, want P-384 alone")
	}
	if state, err := shake(at, &tls.Config{}); err != nil || state.CurveID != tls.CurveP384 || state.Version != tls.VersionTLS13 {
		t.Errorf("got %v %x, %v, want P-384", state.CurveID, state.Version, err)
	}
	if h, err = set("--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"); err != nil {
		t.Fatal(err)
	}
	at = listening(t, h)
	if state, err := shake(at, &tls.Config{MaxVersion: tls.VersionTLS12}); err != nil || state.CipherSuite != tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 {
		t.Errorf("got %s, %v", tls.CipherSuiteName(state.CipherSuite), err)
	}
	if _, err := shake(at, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}}); err == nil {
		t.Error("a suite is taken that is not allowed")
	}
}

func TestPortsAreSharedWithThoseThatAllowIt(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:0")
	for _, sharing := range []Sharing{{}, {Port: true}} {
		l, err := sharing.Listen(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		again, err := sharing.Listen(t.Context(), l.Addr().(*net.TCPAddr).AddrPort())
		if (err == nil) != sharing.Port {
			t.Errorf("%+v: got %v when a second one listens", sharing, err)
		}
		if err == nil {
			again.Close()
		}
		l.Close()
	}
}

func TestAPartDemandsWhatItsFlagsSay(t *testing.T) {
	o := Defaults(1)
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(f)
	if err := f.Parse([]string{"--tls-min-version=VersionTLS13"}); err != nil {
		t.Fatal(err)
	}
	b := newBed(t, o)
	at := strings.TrimPrefix(b.url, "https://")
	if _, err := shake(at, &tls.Config{MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 is taken, want 1.3 at least")
	}
	if code, body := b.get("/healthz", "", nil); code != 200 {
		t.Errorf("got %d %s", code, body)
	}
	o.Named = []Named{{CertFile: "none", KeyFile: "none"}}
	l, err := Sharing{}.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := task.NewGroup(t.Context())
	if err := o.serve(g, Part{Host: "machine"}, l); err == nil || !strings.HasPrefix(err.Error(), "--tls-sni-cert-key none,none: ") {
		t.Errorf("got %v, want the files that are missing named", err)
	}
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
