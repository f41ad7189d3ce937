package https_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/test/wait"
)

const execVersion = "client.authentication.k8s.io/v1"

// program is one that fetches credentials.
type program struct {
	*bed
	dir string
}

// newProgram makes one, which says what is in the file "said", and notes that it ran and what it was told.
func newProgram(b *bed) *program {
	b.Helper()
	p := &program{b, b.TempDir()}
	p.write("plugin", "#!/bin/sh\ncd \"$(dirname \"$0\")\"\necho \"$1 $COLOUR $KUBERNETES_EXEC_INFO\" >>told\ncat said\n")
	return p
}

func (p *program) write(name, text string) {
	p.Helper()
	p.must(os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o700))
}

// says has it say a status from now on.
func (p *program) says(s clientauthentication.ExecCredentialStatus) {
	p.Helper()
	text, err := json.Marshal(clientauthentication.ExecCredential{TypeMeta: metav1.TypeMeta{APIVersion: execVersion, Kind: "ExecCredential"}, Status: &s})
	p.must(err)
	p.write("next", string(text))
	p.must(os.Rename(filepath.Join(p.dir, "next"), filepath.Join(p.dir, "said")))
}

// told are the lines that it noted.
func (p *program) told() []string {
	p.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "told"))
	p.must(err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func (p *program) config() *rest.Config {
	return &rest.Config{
		Host: "https://" + p.addr, TLSClientConfig: rest.TLSClientConfig{CAData: p.pki.CA.CertPEM()},
		ExecProvider: &clientcmdapi.ExecConfig{
			APIVersion: execVersion, Command: filepath.Join(p.dir, "plugin"), Args: []string{"fetch"}, Env: []clientcmdapi.ExecEnvVar{{Name: "COLOUR", Value: "red"}},
			InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode, ProvideClusterInfo: true, Config: &runtime.Unknown{Raw: []byte(`{"audience":"x"}`)},
		},
	}
}

func (p *program) connect() *https.Transport {
	p.Helper()
	o, err := https.FromConfig(p.config())
	p.must(err)
	t, err := https.New(o)
	p.must(err)
	return t
}

func (p *program) ask(t client.Transport) error {
	_, err := client.For(t, core.Namespaces).Get(p.ctx, "", "default")
	return err
}

func TestPluginSaysWhoAsks(t *testing.T) {
	t.Parallel()
	p := newProgram(newBed(t))
	p.says(clientauthentication.ExecCredentialStatus{Token: "good"})
	api := p.connect()
	for range 3 {
		p.must(p.ask(api))
	}
	told := p.told()
	if len(told) != 1 {
		t.Fatalf("the program ran %d times, want once", len(told))
	}
	for _, part := range []string{
		"fetch red {", `"apiVersion":"client.authentication.k8s.io/v1"`, `"interactive":false`, `"server":"https://` + p.addr + `"`, `"config":{"audience":"x"}`, `"certificate-authority-data":`,
	} {
		if !strings.Contains(told[0], part) {
			t.Errorf("the program was told %s, want in it %s", told[0], part)
		}
	}
	// A token that is refused is asked for anew.
	p.tokens.set(map[string]string{"better": "agent"})
	p.says(clientauthentication.ExecCredentialStatus{Token: "better"})
	wait.Until(t, func() error { return p.ask(api) })
	// So is one that has ended.
	p.says(clientauthentication.ExecCredentialStatus{Token: "better", ExpirationTimestamp: &metav1.Time{Time: time.Now().Add(-time.Second)}})
	ended := p.connect()
	before := len(p.told())
	for range 2 {
		p.must(p.ask(ended))
	}
	if got := len(p.told()) - before; got != 2 {
		t.Errorf("the program ran %d times, want once for each request after its token has ended", got)
	}
}

func TestPluginGivesACertificate(t *testing.T) {
	t.Parallel()
	p := newProgram(newBed(t))
	pair, err := p.pki.Admin()
	p.must(err)
	key, err := pair.KeyPEM()
	p.must(err)
	p.says(clientauthentication.ExecCredentialStatus{ClientCertificateData: string(pair.CertPEM()), ClientKeyData: string(key)})
	api := p.connect()
	for range 2 {
		p.must(p.ask(api))
	}
	if got := len(p.told()); got != 1 {
		t.Errorf("the program ran %d times, want once", got)
	}
}

func TestPluginsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	p := newProgram(newBed(t))
	for want, change := range map[string]func(c *rest.Config){
		`exec plugin: invalid apiVersion "client.authentication.k8s.io/v1alpha1"`: func(c *rest.Config) { c.ExecProvider.APIVersion = "client.authentication.k8s.io/v1alpha1" },
		"exec plugin cannot support interactive mode":                             func(c *rest.Config) { c.ExecProvider.InteractiveMode = clientcmdapi.AlwaysExecInteractiveMode },
		"passwords, impersonation and auth-provider are not for this":             func(c *rest.Config) { c.Username = "u" },
		"insecure-skip-tls-verify is not for this":                                func(c *rest.Config) { c.Insecure = true },
	} {
		c := p.config()
		change(c)
		if _, err := https.FromConfig(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	status := `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":%s}`
	for want, said := range map[string]string{
		"didn't return a status field":                            `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"}`,
		"didn't return a token or cert/key pair":                  fmt.Sprintf(status, `{}`),
		"returned only certificate or key, not both":              fmt.Sprintf(status, `{"clientKeyData":"x"}`),
		"failed parsing client key/certificate":                   fmt.Sprintf(status, `{"clientKeyData":"x","clientCertificateData":"y"}`),
		"is configured to use API version " + execVersion:         `{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential"}`,
		"decoding stdout":                                         "good day",
		"it said more than 1048576 bytes":                         string(bytes.Repeat([]byte(" "), 2<<20)),
		"plugin failed with exit code 1: cat: said: No such file": "",
	} {
		p.write("said", said)
		if said == "" {
			p.must(os.Remove(filepath.Join(p.dir, "said")))
		}
		if err := p.ask(p.connect()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	p.write("said", "")
	c := p.config()
	c.ExecProvider.Command, c.ExecProvider.InstallHint = "no-such-program", "install it"
	o, err := https.FromConfig(c)
	p.must(err)
	api, err := https.New(o)
	p.must(err)
	if err := p.ask(api); err == nil || !strings.Contains(err.Error(), "exec: executable no-such-program not found: install it") {
		t.Errorf("got %v, want what to install", err)
	}
}

func TestAuthorityInAFileIsReadAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	file := filepath.Join(b.TempDir(), "ca.crt")
	b.must(os.WriteFile(file, b.pki.FrontProxyCA.CertPEM(), 0o600)) // not the servers'
	o, err := https.FromConfig(&rest.Config{Host: "https://" + b.addr, BearerToken: "good", TLSClientConfig: rest.TLSClientConfig{CAFile: file}})
	b.must(err)
	api, err := https.New(o)
	b.must(err)
	ask := func() error {
		_, err := client.For(api, core.Namespaces).Get(b.ctx, "", "default")
		return err
	}
	if err := ask(); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("got %v, want a server that is not believed", err)
	}
	b.must(os.WriteFile(file, b.pki.CA.CertPEM(), 0o600))
	wait.Until(t, ask)
}
