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
// again when these change.
func FromConfig(c *rest.Config) (o Options, err error) {
	if c.ExecProvider != nil || c.AuthProvider != nil || c.Username != "" || c.Impersonate.UserName != "" {
		return o, errors.New("the kubeconfig's user must have a token or a certificate, in the file or in files of their own; programs, passwords and impersonation are not for this")
	}
	if c.Insecure || c.TLSClientConfig.ServerName != "" {
		return o, errors.New("the kubeconfig must name the cluster's authority, and the server by a name of its certificate")
	}
	server := c.Host
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	config := rest.CopyConfig(c)
	if err := rest.LoadTLSFiles(config); err != nil {
		return o, fmt.Errorf("read what the kubeconfig names: %w", err)
	}
	o = Options{Servers: []string{server}, CA: config.CAData, Agent: c.UserAgent}
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
