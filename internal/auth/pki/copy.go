package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// CopyAuthorities copies from one directory to another what a cluster is known by: its
// authority, that of front proxies if there is one, and the key that signs tokens of
// accounts. It refuses what [Ensure] could not work with.
func CopyAuthorities(from, to string) error {
	f := files{from}
	for _, name := range []string{"ca", "front-proxy-ca"} {
		cert, err := f.cert(name)
		if err != nil {
			return err
		}
		if cert == nil && name != "ca" {
			continue
		}
		if cert == nil {
			return fmt.Errorf("%s is missing", f.path(name+".crt"))
		}
		key, err := os.ReadFile(f.path(name + ".key"))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is missing: certificates could not be signed", f.path(name+".key"))
		}
		if err != nil {
			return fmt.Errorf("read private key: %w", err)
		}
		signer, err := parseKey(key)
		switch {
		case err != nil:
			return fmt.Errorf("read %s: %w", f.path(name+".key"), err)
		case !matches(cert, signer):
			return fmt.Errorf("%s and its key do not belong together", f.path(name+".crt"))
		case !cert.IsCA:
			return fmt.Errorf("%s is not that of an authority", f.path(name+".crt"))
		case time.Now().After(cert.NotAfter):
			return fmt.Errorf("%s ended at %s", f.path(name+".crt"), cert.NotAfter.UTC().Format(time.RFC3339))
		}
		if err := errors.Join(wholefile.Private(filepath.Join(to, name+".key"), key), wholefile.Private(filepath.Join(to, name+".crt"), certPEM(cert))); err != nil {
			return err
		}
	}
	key, err := os.ReadFile(f.path("sa.key"))
	if err != nil {
		return fmt.Errorf("read the key that signs tokens: %w", err)
	}
	if _, err := parseKey(key); err != nil {
		return fmt.Errorf("read %s: %w", f.path("sa.key"), err)
	}
	return wholefile.Private(filepath.Join(to, "sa.key"), key)
}
