package edge

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// certificatesAfter returns the certificates after a change. One that cannot be read is
// left out: who made the change has said so already.
func (e *Edge) certificatesAfter(old *state, c *route.Change) map[string]*tls.Certificate {
	if len(c.Certificates) == 0 && !c.Whole {
		return old.certs
	}
	certs := map[string]*tls.Certificate{}
	if !c.Whole && old.certs != nil {
		certs = maps.Clone(old.certs)
	}
	for key, one := range c.Certificates {
		delete(certs, key)
		if one == nil {
			continue
		}
		pair, err := tls.X509KeyPair(one.Chain, one.Key)
		if err != nil {
			e.o.Log.Error("certificate cannot be used", "certificate", key, "err", err)
			continue
		}
		certs[key] = &pair
	}
	return certs
}

// certificate chooses what a client is shown, by the name that it asks for.
func (e *Edge) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	s := e.state.Load()
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if cert := s.certs[s.table.Certificate(name)]; cert != nil {
		return cert, nil
	}
	return e.own.get()
}

// tlsConfig is that of the HTTPS port. Its records are full: small ones would be a system call each.
func (e *Edge) tlsConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: e.certificate, NextProtos: httpProtocols, DynamicRecordSizingDisabled: true}
}

// ownCertificate is shown where nobody has said which. It says so, and nobody believes it.
type ownCertificate struct {
	mu struct {
		sync.Mutex
		cert *tls.Certificate
	}
}

// ownLife is how long it is good for. The process may live as long.
const ownLife = 10 * 365 * 24 * time.Hour

func (o *ownCertificate) get() (*tls.Certificate, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.cert != nil {
		return o.mu.cert, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Kemudi Ingress without a certificate"}, DNSNames: []string{"ingress.local"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(ownLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	o.mu.cert = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return o.mu.cert, nil
}
