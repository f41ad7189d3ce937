package https

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Plugin is a program that says who asks, as the exec plugins of kubeconfig files do: by a token, by
// a certificate, or by both. It is run when that is not known, has ended or was refused.
type Plugin struct {
	run  *clientcmdapi.ExecConfig
	info string        // what the program is told in its environment
	turn chan struct{} // full while somebody looks after a new credential

	mu struct {
		sync.Mutex
		last   *credential // nil: none is good
		failed error       // of the last run; nil: it succeeded
		ran    time.Time
	}
}

// credential is what a program said. Its fields do not change.
type credential struct {
	token string           // empty: none
	cert  *tls.Certificate // nil: none
	until time.Time        // zero: no end is known
}

// Limits of the programs.
const (
	pluginWithin = time.Minute     // how long one may run
	pluginLinger = 5 * time.Second // for what it has started itself
	pluginOutput = 1 << 20         // how many bytes it may say
	pluginRest   = time.Second     // between two runs, however bad what the first said is
)

// execInfo is the environment variable that tells the program for whom it runs.
const execInfo = "KUBERNETES_EXEC_INFO"

// newPlugin is the program that a kubeconfig names; nil if it names none, or a token or a certificate,
// which go before it.
func newPlugin(c *rest.Config) (*Plugin, error) {
	run := c.ExecProvider
	if run == nil || c.BearerToken != "" || c.BearerTokenFile != "" || c.CertFile != "" || len(c.CertData) > 0 {
		return nil, nil
	}
	switch run.APIVersion {
	case "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1":
	default:
		return nil, fmt.Errorf("exec plugin: invalid apiVersion %q", run.APIVersion)
	}
	if run.InteractiveMode == clientcmdapi.AlwaysExecInteractiveMode {
		return nil, errors.New("exec plugin cannot support interactive mode: there is nobody to ask")
	}
	ask := clientauthentication.ExecCredential{TypeMeta: metav1.TypeMeta{APIVersion: run.APIVersion, Kind: "ExecCredential"}}
	if run.ProvideClusterInfo {
		info, err := rest.ConfigToExecCluster(c)
		if err != nil {
			return nil, fmt.Errorf("exec plugin: %w", err)
		}
		ask.Spec.Cluster = &clientauthentication.Cluster{
			Server: info.Server, TLSServerName: info.TLSServerName, InsecureSkipTLSVerify: info.InsecureSkipTLSVerify, CertificateAuthorityData: info.CertificateAuthorityData,
			ProxyURL: info.ProxyURL, DisableCompression: info.DisableCompression, Config: runtime.RawExtension{Object: info.Config},
		}
	}
	text, err := json.Marshal(ask)
	if err != nil {
		return nil, fmt.Errorf("exec plugin: encode %s: %w", execInfo, err)
	}
	return &Plugin{run: run, info: string(text), turn: make(chan struct{}, 1)}, nil
}

// get returns a good credential; nil if there is no program.
func (p *Plugin) get(ctx context.Context) (*credential, error) {
	if p == nil {
		return nil, nil
	}
	if c, err := p.known(); c != nil || err != nil {
		return c, err
	}
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-p.turn }()
	if c, err := p.known(); c != nil || err != nil { // somebody else was faster
		return c, err
	}
	c, err := p.execute(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.last, p.mu.failed, p.mu.ran = c, err, time.Now()
	return c, err
}

// known is what the program said last while that is good, or why it has said nothing just now.
func (p *Plugin) known() (*credential, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.mu.last
	if c != nil && !c.until.IsZero() && !time.Now().Before(c.until) {
		c = nil
	}
	if c == nil && p.mu.failed != nil && time.Since(p.mu.ran) < pluginRest {
		return nil, p.mu.failed
	}
	return c, nil
}

// refused says that a server did not believe a credential.
func (p *Plugin) refused(c *credential) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.last == c && time.Since(p.mu.ran) >= pluginRest {
		p.mu.last = nil
	}
}

// last is what the program said last, good or not; nil if there is none.
func (p *Plugin) last() *credential {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.last
}

// certificate is the client certificate to show; an empty one if there is none.
func (p *Plugin) certificate() *tls.Certificate {
	if c := p.last(); c != nil && c.cert != nil {
		return c.cert
	}
	return &tls.Certificate{}
}

// execute runs the program.
func (p *Plugin) execute(ctx context.Context) (*credential, error) {
	ctx, cancel := context.WithTimeout(ctx, pluginWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.run.Command, p.run.Args...)
	cmd.WaitDelay = pluginLinger
	cmd.Env = os.Environ()
	for _, v := range p.run.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.Env = append(cmd.Env, execInfo+"="+p.info)
	var out, complaint bounded
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil && !out.full {
		return nil, p.failure(err, strings.TrimSpace(complaint.taken.String()))
	}
	if out.full {
		return nil, fmt.Errorf("exec plugin %s: %w", p.run.Command, errTalkative)
	}
	c, err := p.parse(out.taken.Bytes())
	if err != nil {
		return nil, fmt.Errorf("exec plugin %s: %w", p.run.Command, err)
	}
	return c, nil
}

// failure is why the program has said nothing, with the next step.
func (p *Plugin) failure(err error, said string) error {
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		text := fmt.Sprintf("exec: executable %s not found", p.run.Command)
		if p.run.InstallHint != "" {
			text += ": " + p.run.InstallHint
		}
		return errors.New(text)
	case errors.As(err, &exit) && said != "":
		return fmt.Errorf("exec: executable %s failed with exit code %d: %s", p.run.Command, exit.ExitCode(), said)
	case errors.As(err, &exit):
		return fmt.Errorf("exec: executable %s failed with exit code %d", p.run.Command, exit.ExitCode())
	}
	return fmt.Errorf("exec: %w", err)
}

// parse reads what the program said.
func (p *Plugin) parse(said []byte) (*credential, error) {
	var answer clientauthentication.ExecCredential
	if err := json.Unmarshal(said, &answer); err != nil {
		return nil, fmt.Errorf("decoding stdout: %w", err)
	}
	if answer.Kind != "ExecCredential" || answer.APIVersion != p.run.APIVersion {
		return nil, fmt.Errorf("it is configured to use API version %s, and returned %s of version %s", p.run.APIVersion, answer.Kind, answer.APIVersion)
	}
	s := answer.Status
	switch {
	case s == nil:
		return nil, errors.New("it didn't return a status field")
	case s.Token == "" && s.ClientCertificateData == "" && s.ClientKeyData == "":
		return nil, errors.New("it didn't return a token or cert/key pair")
	case (s.ClientCertificateData == "") != (s.ClientKeyData == ""):
		return nil, errors.New("it returned only certificate or key, not both")
	}
	c := &credential{token: s.Token}
	if s.ExpirationTimestamp != nil {
		c.until = s.ExpirationTimestamp.Time
	}
	if s.ClientCertificateData != "" {
		pair, err := tls.X509KeyPair([]byte(s.ClientCertificateData), []byte(s.ClientKeyData))
		if err != nil {
			return nil, fmt.Errorf("failed parsing client key/certificate: %w", err)
		}
		c.cert = &pair
	}
	return c, nil
}

// bounded takes so much and no more.
type bounded struct {
	taken bytes.Buffer
	full  bool // there was more
}

var errTalkative = fmt.Errorf("it said more than %d bytes", pluginOutput)

// Write takes p, or fails.
func (b *bounded) Write(p []byte) (int, error) {
	if b.full = b.full || b.taken.Len()+len(p) > pluginOutput; b.full {
		return 0, errTalkative
	}
	return b.taken.Write(p)
}
