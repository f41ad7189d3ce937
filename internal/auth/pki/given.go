package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/kemudi/kemudi/internal/client/https"
)

// Given are files of keys and certificates that others have made and renew, each by the
// API server's flag.
type Given struct {
	ServingCert, ServingKey string // --tls-cert-file, --tls-private-key-file
	ClientCA                string // --client-ca-file: who signs the certificates of clients
	// ProxyCert and ProxyKey are what servers of aggregated APIs know this one by; none: they do not.
	ProxyCert, ProxyKey string // --proxy-client-cert-file, --proxy-client-key-file
}

// given is a certificate that is read again when its files change.
type given struct {
	serving func() (*tls.Certificate, error)
	proxy   func() (*tls.Certificate, error) // nil: there is none
}

// Open reads keys and certificates that others have made. Nothing can be signed with them.
func Open(g Given) (*PKI, error) {
	if g.ServingCert == "" || g.ServingKey == "" {
		return nil, errors.New("--tls-cert-file and --tls-private-key-file: want both")
	}
	if g.ClientCA == "" {
		return nil, errors.New("--client-ca-file: want the certificates of the authority that clients are known by")
	}
	if (g.ProxyCert == "") != (g.ProxyKey == "") {
		return nil, errors.New("--proxy-client-cert-file and --proxy-client-key-file go together")
	}
	p := &PKI{given: &given{serving: https.CertificateFiles(g.ServingCert, g.ServingKey)}}
	if _, err := p.given.serving(); err != nil {
		return nil, fmt.Errorf("--tls-cert-file: %w", err)
	}
	if g.ProxyCert != "" {
		p.given.proxy = https.CertificateFiles(g.ProxyCert, g.ProxyKey)
		if _, err := p.given.proxy(); err != nil {
			return nil, fmt.Errorf("--proxy-client-cert-file: %w", err)
		}
	}
	var err error
	if p.CA, err = ReadBundle(g.ClientCA); err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	return p, nil
}

// ReadBundle reads authorities that are to be trusted, without their keys.
func ReadBundle(file string) (*Authority, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var a Authority
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if a.Cert == nil {
			a.Cert = cert
		} else {
			a.further = append(a.further, cert)
		}
	}
	if a.Cert == nil {
		return nil, fmt.Errorf("%s: there is no certificate in it", file)
	}
	return &a, nil
}
