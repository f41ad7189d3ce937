package hook

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Identities are what this server shows to webhooks: the users of a kubeconfig, which are called as webhooks are.
// Nil is that it shows nothing to any.
type Identities struct{ config *clientcmdapi.Config }

// Identity is what is shown to a webhook.
type Identity struct {
	name   string
	config *rest.Config
}

// ReadIdentities reads a kubeconfig; without one there are none.
func ReadIdentities(file string) (*Identities, error) {
	if file == "" {
		return nil, nil
	}
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", file, err)
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	i := &Identities{config}
	for name := range config.AuthInfos {
		if _, err := i.identity(name); err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", file, err)
		}
	}
	return i, nil
}

// Of is what is shown to a webhook; nil: nothing.
func (i *Identities) Of(c Config) (*Identity, error) {
	if i == nil {
		return nil, nil
	}
	to, err := c.target()
	if err != nil {
		return nil, err
	}
	host, port := to.Hostname(), to.Port()
	if port == "" {
		port = "443"
	}
	name := i.named(host, port)
	if name == "" {
		return nil, nil
	}
	return i.identity(name)
}

// named is the user for a host and port: that of both or, if it is the usual port, of the host; of each, the whole
// name goes before *. and an end of it. Who is called * is for all others, and so is the user of the current context.
func (i *Identities) named(host, port string) string {
	ends := []string{net.JoinHostPort(host, port)}
	if port == "443" {
		ends = append(ends, host)
	}
	for _, end := range ends {
		for name := end; ; name = "*." + end {
			if i.config.AuthInfos[name] != nil {
				return name
			}
			var ok bool
			if _, end, ok = strings.Cut(end, "."); !ok {
				break
			}
		}
	}
	if i.config.AuthInfos["*"] != nil {
		return "*"
	}
	if c := i.config.Contexts[i.config.CurrentContext]; c != nil && i.config.AuthInfos[c.AuthInfo] != nil {
		return c.AuthInfo
	}
	return ""
}

func (i *Identities) identity(name string) (*Identity, error) {
	const it = "webhook"
	one := clientcmdapi.NewConfig()
	one.AuthInfos[it] = i.config.AuthInfos[name]
	one.Clusters[it] = &clientcmdapi.Cluster{Server: "https://" + it} // nobody asks it; for others certificates would be left out
	one.Contexts[it] = &clientcmdapi.Context{Cluster: it, AuthInfo: it}
	config, err := clientcmd.NewNonInteractiveClientConfig(*one, it, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	return &Identity{name, config}, nil
}

// shownBy has connections show the certificate, and requests the rest. No request was made by t yet.
func (i *Identity) shownBy(t *http.Transport) (http.RoundTripper, error) {
	shown, err := rest.TLSConfigFor(i.config)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", i.name, err)
	}
	if shown != nil {
		t.TLSClientConfig.Certificates, t.TLSClientConfig.GetClientCertificate = shown.Certificates, shown.GetClientCertificate
	}
	rt, err := rest.HTTPWrappersForConfig(i.config, t)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", i.name, err)
	}
	return rt, nil
}
