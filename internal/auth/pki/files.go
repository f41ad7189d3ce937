package pki

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// files reads and writes keys and certificates by name, in one directory.
type files struct{ dir string }

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

// key reads a private key, or makes and writes it.
func (f files) key(name string) (crypto.Signer, error) { return Key(f.path(name + ".key")) }

// Key reads the private key in a file, or makes one and writes it there.
func Key(path string) (crypto.Signer, error) {
	data, err := os.ReadFile(path)
	if err == nil {
		key, err := parseKey(data)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		return key, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read private key: %w", err)
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	text, err := keyPEM(key)
	if err != nil {
		return nil, err
	}
	return key, wholefile.Private(path, text)
}

// cert reads a certificate; nil if there is none.
func (f files) cert(name string) (*x509.Certificate, error) {
	path := f.path(name + ".crt")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	cert, err := parseCert(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return cert, nil
}

// authority reads an authority, or makes it.
func (f files) authority(file, name string) (*Authority, error) {
	cert, err := f.cert(file)
	if err != nil {
		return nil, err
	}
	if cert != nil {
		if _, err := os.Stat(f.path(file + ".key")); err != nil {
			return nil, fmt.Errorf("%s has no key: %w", f.path(file+".crt"), err)
		}
	}
	key, err := f.key(file)
	if err != nil {
		return nil, err
	}
	if cert == nil {
		a, err := newAuthority(name, key)
		if err != nil {
			return nil, err
		}
		return a, wholefile.Private(f.path(file+".crt"), a.CertPEM())
	}
	if !matches(cert, key) {
		return nil, fmt.Errorf("%s and its key do not belong together", f.path(file+".crt"))
	}
	return &Authority{Cert: cert, Key: key}, nil
}

// ReadAuthority reads an authority that others have made: its certificate, and the key to it.
func ReadAuthority(certFile, keyFile string) (*Authority, error) {
	text, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	cert, err := parseCert(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", certFile, err)
	}
	if text, err = os.ReadFile(keyFile); err != nil {
		return nil, fmt.Errorf("read private key: %w", err)
	}
	key, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", keyFile, err)
	}
	if !matches(cert, key) {
		return nil, fmt.Errorf("%s and %s do not belong together", certFile, keyFile)
	}
	return &Authority{Cert: cert, Key: key}, nil
}

// pair reads a certificate with its key and makes anew what is missing, does
// not fit or ends soon. The key stays.
func (f files) pair(a *Authority, file string, s Subject) (Pair, error) {
	key, err := f.key(file)
	if err != nil {
		return Pair{}, err
	}
	cert, err := f.cert(file)
	if err == nil && cert != nil && matches(cert, key) && a.fits(cert, s) {
		return Pair{Cert: cert, Key: key}, nil
	}
	p, err := a.issueFor(key, s) // a broken certificate is replaced too
	if err != nil {
		return Pair{}, err
	}
	return p, wholefile.Private(f.path(file+".crt"), p.CertPEM())
}
