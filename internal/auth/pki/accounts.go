package pki

import (
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/util/keyutil"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// Names of the files of keys of service accounts' tokens. Public keys whose files match the pattern are
// believed beside that of the key that signs.
const (
	accountKey     = "sa"
	accountPublic  = "sa.pub"
	accountPattern = "sa-*.pub"
)

// AccountKeys reads the key that signs tokens of service accounts, or makes it, and the public keys that are
// believed besides. Where that key is another one than before, the public key of the one before is kept in a file of its own,
// and believed from now on, until somebody removes the file.
func (p *PKI) AccountKeys() (crypto.Signer, []crypto.PublicKey, error) {
	f := p.files()
	key, err := f.key(accountKey)
	if err != nil {
		return nil, nil, err
	}
	if err := p.keepPublic(key.Public()); err != nil {
		return nil, nil, err
	}
	if err := p.writePublic(accountPublic, key.Public()); err != nil {
		return nil, nil, err
	}
	var old []crypto.PublicKey
	for _, file := range p.oldAccountFiles() {
		keys, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", file, err)
		}
		for _, key := range keys {
			old = append(old, key)
		}
	}
	return key, old, nil
}

// AccountKeyFiles are the files that [PKI.AccountKeys] reads.
func (p *PKI) AccountKeyFiles() []string {
	if p.given != nil {
		return nil
	}
	return append([]string{p.files().path(accountKey + ".key")}, p.oldAccountFiles()...)
}

// oldAccountFiles are the files of public keys that are believed besides, in order.
func (p *PKI) oldAccountFiles() []string {
	files, _ := filepath.Glob(p.files().path(accountPattern)) // the pattern is good
	slices.Sort(files)
	return files
}

// keepPublic keeps the public key of before, if now is another one.
func (p *PKI) keepPublic(now crypto.PublicKey) error {
	before, err := os.ReadFile(p.files().path(accountPublic))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the public key of before: %w", err)
	}
	keys, err := keyutil.ParsePublicKeysPEM(before)
	if err != nil || len(keys) == 0 {
		return nil // it is no key, and is written anew
	}
	if same, ok := now.(interface{ Equal(crypto.PublicKey) bool }); !ok || same.Equal(keys[0]) {
		return nil
	}
	name, err := PinOf(keys[0])
	if err != nil {
		return err
	}
	return wholefile.Private(p.files().path(strings.Replace(accountPattern, "*", name[:12], 1)), before)
}

// oldAccountKeys are those files by their names, for other servers of the cluster.
func (p *PKI) oldAccountKeys() (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, file := range p.oldAccountFiles() {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read what servers have in common: %w", err)
		}
		all[filepath.Base(file)] = data
	}
	return all, nil
}

// isOldAccountKey reports whether a file of that name is one of a public key that is believed besides.
func isOldAccountKey(name string) bool {
	fits, err := filepath.Match(accountPattern, name)
	return err == nil && fits
}
