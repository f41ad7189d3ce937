package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// How long certificates are good for, and how much clocks may differ.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	clockSkew     = 5 * time.Minute
	clockAhead    = 24 * time.Hour // where the machine's clock is hours ahead until it is set
)

// Authority is a certificate authority.
type Authority struct {
	Cert *x509.Certificate
	Key  crypto.Signer // nil: it is trusted, and signs elsewhere

	further []*x509.Certificate // that are trusted like it
}

// Subject says for whom a certificate is.
type Subject struct {
	Name          string   // common name: the user, for clients
	Organizations []string // the user's groups, for clients
	// Hosts are the names and addresses of a server; none for clients.
	Hosts []string
	// Client and Server say what the certificate may be used for.
	Client, Server bool
	// Life is how long it is good for. Default one year.
	Life time.Duration
}

// Pair is a certificate with its key.
type Pair struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// CertPEM is the certificate in PEM.
func (p Pair) CertPEM() []byte { return certPEM(p.Cert) }

// KeyPEM is the private key in PEM.
func (p Pair) KeyPEM() ([]byte, error) { return keyPEM(p.Key) }

// TLS is the pair as package crypto/tls wants it.
func (p Pair) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key, Leaf: p.Cert}
}

// CertPEM is the authority's certificate in PEM.
func (a *Authority) CertPEM() []byte { return certPEM(a.Cert) }

// Certs are the certificates of the authority, and of what came in one file with it.
func (a *Authority) Certs() []*x509.Certificate {
	return append([]*x509.Certificate{a.Cert}, a.further...)
}

// Pool is a pool that trusts the authority, and what came in one file with it, alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range a.Certs() {
		pool.AddCert(c)
	}
	return pool
}

// Issue makes a key and a certificate for it.
func (a *Authority) Issue(s Subject) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	return a.issueFor(key, s)
}

func (a *Authority) issueFor(key crypto.Signer, s Subject) (Pair, error) {
	cert, err := a.Sign(key.Public(), s)
	return Pair{Cert: cert, Key: key}, err
}

// Sign makes a certificate for a public key. It ends with the authority at the latest.
func (a *Authority) Sign(public crypto.PublicKey, s Subject) (*x509.Certificate, error) {
	if s.Life == 0 {
		s.Life = leafLife
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: s.Name, Organization: s.Organizations},
		NotBefore:             later(now.Add(-max(clockSkew, min(clockAhead, s.Life/10))), a.Cert.NotBefore),
		NotAfter:              earlier(now.Add(s.Life), a.Cert.NotAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	if s.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	if s.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range s.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return create(template, a.Cert, public, a.Key)
}

// NewAuthority makes an authority of that name that is kept nowhere.
func NewAuthority(name string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	return newAuthority(name, key)
}

func newAuthority(name string, key crypto.Signer) (*Authority, error) {
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		DNSNames:              []string{name},
		NotBefore:             now.Add(-clockAhead),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	cert, err := create(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &Authority{Cert: cert, Key: key}, nil
}

func create(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choose a serial number: %w", err)
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// fits reports whether the certificate still says what s says, is from a and
// does not end soon: a third of its life must be left.
func (a *Authority) fits(cert *x509.Certificate, s Subject) bool {
	if cert.CheckSignatureFrom(a.Cert) != nil || cert.Subject.CommonName != s.Name || endsSoon(cert) {
		return false
	}
	if !slices.Equal(slices.Sorted(slices.Values(cert.Subject.Organization)), slices.Sorted(slices.Values(s.Organizations))) {
		return false
	}
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	for _, h := range s.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			h = ip.String()
		}
		if !slices.Contains(hosts, h) {
			return false
		}
	}
	return true
}

func endsSoon(cert *x509.Certificate) bool {
	return time.Until(cert.NotAfter) < cert.NotAfter.Sub(cert.NotBefore)/3
}

func certPEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

func keyPEM(key crypto.Signer) ([]byte, error) {
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("encode key: %w", err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
	}
	der, err := x509.MarshalECPrivateKey(ec)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func publicPEM(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

func parseCert(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no certificate in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// parseKey reads a private key of any kind that clusters made by others have.
func parseKey(data []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errors.New("no private key in PEM")
		}
		switch block.Type {
		case "EC PRIVATE KEY":
			return x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			return x509.ParsePKCS1PrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, err
			}
			signer, ok := key.(crypto.Signer)
			if !ok {
				return nil, fmt.Errorf("key of type %T cannot sign", key)
			}
			return signer, nil
		}
	}
}

func matches(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
