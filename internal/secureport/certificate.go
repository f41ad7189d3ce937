package secureport

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client/https"
)

// Serving says what certificate is shown.
type Serving struct {
	Name              string   // of the machine
	Hosts             []string // its addresses
	CertFile, KeyFile string   // none: a certificate that nobody has signed
}

// ServingCertificate is what is shown to who connects: what is in the files, read again when they
// change, or a certificate that nobody has signed.
func ServingCertificate(s Serving) (func() (*tls.Certificate, error), error) {
	if s.CertFile != "" {
		cert := https.CertificateFiles(s.CertFile, s.KeyFile)
		if _, err := cert(); err != nil {
			return nil, fmt.Errorf("--tls-cert-file: %w", err)
		}
		return cert, nil
	}
	own, err := pki.NewAuthority(s.Name + "-ca")
	if err != nil {
		return nil, err
	}
	pair, err := own.Issue(pki.Subject{Name: s.Name, Hosts: append([]string{s.Name, "localhost", "127.0.0.1", "::1"}, s.Hosts...), Server: true})
	if err != nil {
		return nil, err
	}
	cert := pair.TLS()
	return func() (*tls.Certificate, error) { return &cert, nil }, nil
}

// Certificates are the authorities in a file that a flag names, read again when it changes; the pool is
// another one then. Without a file it is nil: nobody is trusted.
func Certificates(flag, file string) (func() *x509.CertPool, error) {
	if file == "" {
		return func() *x509.CertPool { return nil }, nil
	}
	read := https.Authorities(file)
	if _, err := read(); err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return func() *x509.CertPool {
		pool, _ := read() // what could be read once is kept
		return pool
	}, nil
}
