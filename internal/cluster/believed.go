package cluster

import (
	"crypto/x509"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/auth/trust"
	"github.com/kemudi/kemudi/internal/secureport"
)

// believed is whom the API server believes by their certificates. What comes from files may become
// something else while it runs.
type believed struct {
	clients func() *x509.CertPool
	proxies func() *x509.CertPool // who may say for whom a request is; nil: nobody
	files   bool
	told    *trust.Publisher
}

// believe finds out whom this server believes.
func (s *server) believe() (err error) {
	b, clients, proxies := &s.believed, "", s.o.Identity.FrontProxy.CA
	if s.o.alone != nil {
		clients = s.o.alone.Keys.ClientCA
	}
	if b.clients, err = secureport.Certificates("--client-ca-file", clients); err != nil {
		return err
	}
	if b.proxies, err = secureport.Certificates("--requestheader-client-ca-file", proxies); err != nil {
		return err
	}
	if b.files = clients != "" || proxies != ""; !b.files {
		s.hints = s.pki.CA.Pool() // else clients are told of no authorities: these may change
	}
	if clients == "" {
		own := s.pki.CA.Pool()
		b.clients = func() *x509.CertPool { return own }
	}
	return nil
}

// chain is o with whom the server believes. Others are told when that has changed.
func (s *server) chain(o authn.Options) authenticator.Request {
	b, f := &s.believed, &s.o.Identity.FrontProxy
	options := func() authn.Options {
		if o.ClientCA = b.clients(); f.CA != "" {
			o.FrontProxy = &authn.FrontProxy{CA: b.proxies(), Names: f.Names, Headers: f.Headers}
		}
		if b.told != nil {
			b.told.Changed()
		}
		return o
	}
	if !b.files {
		return authn.New(options())
	}
	return authn.NewRenewed(func() any { return [2]*x509.CertPool{b.clients(), b.proxies()} }, options)
}

// trust is what others are told. A server believes no front proxies but those of the operator's choice;
// it is one itself to the servers of aggregated APIs.
func (s *server) trust() (trust.Trust, error) {
	said := trust.Trust{Clients: s.pki.CA.Certs()}
	if a := s.o.alone; a == nil {
		said.Proxies, said.Names, said.Headers = s.pki.FrontProxyCA.Certs(), []string{pki.FrontProxyName}, authn.FrontProxyHeaders{}.Canonical()
	} else {
		clients, err := pki.ReadBundle(a.Keys.ClientCA)
		if err != nil {
			return said, fmt.Errorf("--client-ca-file: %w", err)
		}
		said.Clients = clients.Certs()
	}
	f := &s.o.Identity.FrontProxy
	if f.CA == "" {
		return said, nil
	}
	proxies, err := pki.ReadBundle(f.CA)
	if err != nil {
		return said, fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	return said.With(trust.Trust{Proxies: proxies.Certs(), Names: f.Names, Headers: f.Headers.Canonical()}, time.Now()), nil
}
