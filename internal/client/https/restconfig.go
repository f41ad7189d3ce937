package https

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/rest"
)

// FromConfig are the options of a client that is configured as client-go's are: by a
// kubeconfig file, or by the account of the pod that it runs in. Credentials in files are read
// again when these change, and programs that fetch them are run.
func FromConfig(c *rest.Config) (o Options, err error) {
	if c.AuthProvider != nil || c.Username != "" || c.Impersonate.UserName != "" {
		return o, errors.New("the kubeconfig's user must have a token, a certificate or a program that fetches them (exec); passwords, impersonation and auth-provider are not for this")
	}
	if c.Insecure {
		return o, errors.New("the kubeconfig must name the cluster's authority: insecure-skip-tls-verify is not for this")
	}
	if c.Proxy != nil {
		return o, errors.New("the kubeconfig names a proxy-url; servers are asked directly, and this is not for proxies")
	}
	server := c.Host
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	config := rest.CopyConfig(c)
	if err := rest.LoadTLSFiles(config); err != nil {
		return o, fmt.Errorf("read what the kubeconfig names: %w", err)
	}
	plugin, err := newPlugin(c)
	if err != nil {
		return o, err
	}
	authority := c.CAFile
	if len(c.CAData) > 0 { // which goes before it
		authority = ""
	}
	o = Options{Servers: []string{server}, CA: config.CAData, CAFile: authority, Plugin: plugin, ServerName: c.TLSClientConfig.ServerName, Agent: c.UserAgent}
	switch {
	case c.CertFile != "" && c.KeyFile != "" && len(c.CertData) == 0:
		o.Certificate = CertificateFiles(c.CertFile, c.KeyFile)
	case len(config.CertData) > 0:
		pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
		if err != nil {
			return o, fmt.Errorf("the certificate of the kubeconfig's user: %w", err)
		}
		o.Certificate = func() (*tls.Certificate, error) { return &pair, nil }
	}
	switch {
	case c.BearerTokenFile != "":
		o.Token = TokenFile(c.BearerTokenFile)
	case c.BearerToken != "":
		o.Token = func() (string, error) { return c.BearerToken, nil }
	}
	return o, nil
}
