package join

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// fake is a server that says something of itself, and remembers what it was told.
type fake struct {
	url   string
	clock time.Time // what its answers say; zero: the time

	mu struct {
		sync.Mutex
		heard strings.Builder
	}
}

// serve has a server say that its cluster's authority is said, signed by a token, and serve
// with a certificate of another authority.
func serve(t *testing.T, said, serving *pki.Authority, s pki.Subject, by Token) *fake {
	t.Helper()
	f := &fake{}
	c := clientcmdapi.NewCluster()
	c.Server, c.CertificateAuthorityData = "https://192.0.2.1:6443", said.CertPEM()
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = c
	text, err := clientcmd.Write(*config)
	must(t, err)
	body, err := json.Marshal(&corev1.ConfigMap{Data: map[string]string{"kubeconfig": string(text), signaturePrefix + by.ID: sign(string(text), by)}})
	must(t, err)
	pair, err := serving.Issue(s)
	must(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		_ = r.Header.Write(&f.mu.heard)
		_, _ = io.Copy(&f.mu.heard, r.Body)
		f.mu.heard.WriteString(r.URL.String())
		if !f.clock.IsZero() {
			w.Header().Set("Date", f.clock.UTC().Format(http.TimeFormat))
		}
		_, _ = w.Write(body)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair.TLS()}}
	server.StartTLS()
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func authority(t *testing.T, name string) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(name)
	must(t, err)
	return a
}

// I1: whoever the server is, it is told nothing of the token.
func TestClusterIsBelievedByPinOrSignature(t *testing.T) {
	t.Parallel()
	ours, theirs := authority(t, "ours"), authority(t, "theirs")
	pinned := NewToken(pki.Pin(ours.Cert))
	plain := Token{ID: pinned.ID, Secret: pinned.Secret}
	other := Token{ID: pinned.ID, Secret: NewToken("").Secret}
	here := pki.Subject{Name: "server", Hosts: []string{"127.0.0.1"}, Server: true}
	elsewhere := pki.Subject{Name: "server", Hosts: []string{"192.0.2.1"}, Server: true}
	over := pki.Subject{Name: "server", Hosts: []string{"127.0.0.1"}, Server: true, Life: -time.Minute}
	for _, c := range []struct {
		name          string
		said, serving *pki.Authority
		subject       pki.Subject
		signed, shown Token
		clock         time.Time
		want          string // part of the error; empty: it is believed
	}{
		{"by the pin", ours, ours, here, plain, pinned, time.Time{}, ""},
		{"by the pin, before it is signed", ours, ours, here, NewToken(""), pinned, time.Time{}, ""},
		{"by the signature", ours, ours, here, plain, plain, time.Time{}, ""},
		{"another cluster that knows the token", theirs, theirs, here, plain, pinned, time.Time{}, "is not the one that token"},
		{"one that says to be ours", ours, theirs, here, plain, pinned, time.Time{}, "has not signed"},
		{"one that repeats our signature", ours, theirs, here, plain, plain, time.Time{}, "has not signed"},
		{"one that has changed what was signed", theirs, theirs, here, other, plain, time.Time{}, "is not the one that the cluster"},
		{"a token that nobody knows", ours, ours, here, NewToken(""), plain, time.Time{}, "has ended or was revoked"},
		{"another name of the server", ours, ours, elsewhere, plain, pinned, time.Time{}, "--tls-san"},
		{"this machine's clock is wrong", ours, ours, over, plain, pinned, time.Now().Add(-time.Hour), "Set this machine's clock"},
		{"the server's certificate has ended", ours, ours, over, plain, pinned, time.Time{}, "restart the server"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, c.said, c.serving, c.subject, c.signed)
			f.clock = c.clock
			got, err := Discover(t.Context(), f.url, c.shown)
			var final *Refusal
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v, want it to be believed", err)
			case c.want == "":
				if len(got.Servers) != 2 || got.Servers[0] != f.url || got.Servers[1] != "https://192.0.2.1:6443" || string(got.CA) != string(ours.CertPEM()) {
					t.Errorf("got %v, want the server that was asked, the one that it named, and our authority", got)
				}
			case !errors.As(err, &final) || !strings.Contains(err.Error(), c.want):
				t.Errorf("got %v, want a refusal that says %q", err, c.want)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if heard := f.mu.heard.String(); strings.Contains(heard, c.shown.Secret) || strings.Contains(heard, "Authorization") {
				t.Errorf("the server was told %q", heard)
			}
		})
	}
}

func TestServerIsNamedAsPeopleDo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.0.0.1": "https://10.0.0.1:6443", "10.0.0.1:7443": "https://10.0.0.1:7443", "https://a.example": "https://a.example", " https://a.example:6443/ ": "https://a.example:6443",
		"2001:db8::1": "https://[2001:db8::1]:6443", "[2001:db8::1]:7443": "https://[2001:db8::1]:7443", "a.example": "https://a.example:6443",
		"http://a.example": "", "": "", "https://": "", "https://a.example/path": "", "a b": "",
	} {
		if got, err := serverURL(text); got != want || (err != nil) != (want == "") {
			t.Errorf("serverURL(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestWhatIsNoClusterIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		want   string
	}{
		"a web server":    {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>") }, "no API server"},
		"nothing":         {func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, "kube-public/cluster-info"},
		"no authority":    {func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"data":{"kubeconfig":"clusters: []"}}`) }, "names no authority"},
		"it is not ready": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, "503"},
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w) }))
		_, err := Discover(t.Context(), server.URL, NewToken(""))
		server.Close()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Discover(ctx, "127.0.0.1:1", NewToken("")); !errors.Is(err, context.Canceled) {
		t.Errorf("when nobody waits: got %v", err)
	}
}

func TestDamagedFilesAreNamed(t *testing.T) {
	t.Parallel()
	for _, file := range []string{recordFile, "client.key"} {
		dir := t.TempDir()
		must(t, wholefile.Private(filepath.Join(dir, "client.crt"), []byte("garbage is as good as nothing here")))
		must(t, wholefile.Private(filepath.Join(dir, file), []byte("garbage")))
		if file != "client.key" {
			_, err := pki.Key(filepath.Join(dir, "client.key"))
			must(t, err)
		}
		var final *Refusal
		if _, err := Open(Options{Dir: dir, NodeName: "n1"}); !errors.As(err, &final) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "join again") {
			t.Errorf("%s is garbage: got %v, want a refusal that names it and says what to do", file, err)
		}
	}
}
