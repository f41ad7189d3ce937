package https

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
)

// TokenFile returns a function that returns the token in a file, as it is when
// it is asked: the file is read again when it has been changed or replaced.
func TokenFile(path string) func() (string, error) {
	f := &watched[string]{paths: []string{path}, read: func() (string, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if data = bytes.TrimSpace(data); len(data) == 0 {
			return "", errors.New("file is empty")
		}
		return string(data), nil
	}}
	return f.get
}

// CertificateFiles does the same for a certificate and its key, in PEM.
func CertificateFiles(certFile, keyFile string) func() (*tls.Certificate, error) {
	f := &watched[*tls.Certificate]{paths: []string{certFile, keyFile}, read: func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, err
		}
		return &pair, nil
	}}
	return f.get
}

// Authorities does the same for the certificates of authorities, in PEM: the pool is another one when the
// file has become another.
func Authorities(path string) func() (*x509.CertPool, error) {
	f := &watched[*x509.CertPool]{paths: []string{path}, read: func() (*x509.CertPool, error) {
		bundle, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(bundle) {
			return nil, errors.New("there is no certificate in it")
		}
		return pool, nil
	}}
	return f.get
}

// watched is a value read from files. While they cannot be read, as in the
// middle of their being replaced, the value last read is used.
type watched[T any] struct {
	paths []string
	read  func() (T, error)

	mu struct {
		sync.Mutex
		value T
		seen  []os.FileInfo // the files as they were when value was read; nil: never
	}
}

func (w *watched[T]) get() (T, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, err := stats(w.paths)
	if err == nil && w.mu.seen != nil && same(now, w.mu.seen) {
		return w.mu.value, nil
	}
	var value T
	if err == nil {
		value, err = w.read()
	}
	switch {
	case err == nil:
		w.mu.value, w.mu.seen = value, now
	case w.mu.seen == nil:
		return value, fmt.Errorf("read credentials from %s: %w", w.paths[0], err)
	}
	return w.mu.value, nil
}

func stats(paths []string) ([]os.FileInfo, error) {
	list := make([]os.FileInfo, len(paths))
	for i, path := range paths {
		var err error
		if list[i], err = os.Stat(path); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func same(a, b []os.FileInfo) bool {
	for i := range a {
		if !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) {
			return false
		}
	}
	return true
}
