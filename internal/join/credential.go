package join

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// credential is a key and the certificate that was signed for it last, in two files. The
// key is written first and stays: what was signed for it fits whatever happens between.
type credential struct {
	path  string // without its ending
	share float64
	held  atomic.Pointer[tls.Certificate] // nil: none yet

	failures atomic.Int64 // to renew it
}

// Renewal begins after a random part of a certificate's life: machines that joined
// together do not all come together.
const (
	renewFrom = 0.7
	renewSpan = 0.2
)

// openCredential reads what there is. A certificate that is not for the key is passed over.
func openCredential(dir, name string) (*credential, error) {
	c := &credential{path: filepath.Join(dir, name), share: renewFrom + renewSpan*rand.Float64()}
	text, err := os.ReadFile(c.path + ".crt")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	if _, err := os.Stat(c.path + ".key"); errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	key, err := c.key()
	if err != nil {
		return nil, err
	}
	if cert, err := pair(text, key); err == nil {
		c.held.Store(cert)
	}
	return c, nil
}

// key reads the key, or makes it.
func (c *credential) key() (crypto.Signer, error) {
	key, err := pki.Key(c.path + ".key")
	if err != nil {
		return nil, &Refusal{fmt.Errorf("%w; put back a copy of the file, or remove the whole of %s and join again with a token", err, filepath.Dir(c.path))}
	}
	return key, nil
}

func (c *credential) get() *tls.Certificate { return c.held.Load() }

// keep writes a certificate that was signed for the key.
func (c *credential) keep(text []byte, key crypto.Signer) error {
	cert, err := pair(text, key)
	if err != nil {
		return err
	}
	if err := wholefile.Private(c.path+".crt", text); err != nil {
		return err
	}
	c.held.Store(cert)
	return nil
}

// pair is a certificate with its key as package crypto/tls wants it.
func pair(text []byte, key crypto.Signer) (*tls.Certificate, error) {
	certs, err := parseCertificates(text)
	if err != nil {
		return nil, err
	}
	if len(certs) == 0 {
		return nil, errors.New("what was signed is no certificate in PEM")
	}
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(certs[0].PublicKey) {
		return nil, errors.New("the certificate that was signed is for another key")
	}
	out := &tls.Certificate{PrivateKey: key, Leaf: certs[0]}
	for _, c := range certs {
		out.Certificate = append(out.Certificate, c.Raw)
	}
	return out, nil
}

// signerSkew is how much earlier than it was signed a certificate begins.
const signerSkew = 5 * time.Minute

// due is when the certificate is to be renewed: at once if there is none, or if it is
// for other hosts.
func (c *credential) due(hosts []string) time.Time {
	held := c.get()
	if held == nil || hosts != nil && !slices.Equal(hostsOf(held.Leaf), hosts) {
		return time.Time{}
	}
	begin, end := held.Leaf.NotBefore, held.Leaf.NotAfter
	if signed := begin.Add(signerSkew); signed.Before(end) {
		begin = signed
	}
	return begin.Add(time.Duration(c.share * float64(end.Sub(begin))))
}

// hostsOf are the names and addresses that a certificate is for, sorted.
func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	slices.Sort(hosts)
	return hosts
}

func ended(cert *x509.Certificate) bool { return !time.Now().Before(cert.NotAfter) }
