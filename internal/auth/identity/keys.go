package identity

import (
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"k8s.io/client-go/util/keyutil"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
)

// keys are those of the cluster's own tokens. They are read again when their files have changed.
type keys struct {
	signing string   // file of the key that signs; empty: the server's own
	others  []string // files of further ones that are believed
	own     *pki.PKI
	log     *slog.Logger

	seen atomic.Pointer[string] // the files as they were when they were last read
	told atomic.Pointer[string] // what was wrong with them, as the log has it
}

// read reads the keys as they are now.
func (k *keys) read() (all authn.Keys, err error) {
	if k.signing == "" {
		if k.own == nil {
			return all, errors.New("--service-account-signing-key-file: want the key that tokens of service accounts are signed by")
		}
		if all.Key, all.OldKeys, err = k.own.AccountKeys(); err != nil {
			return all, err
		}
	} else {
		key, err := keyutil.PrivateKeyFromFile(k.signing)
		if err != nil {
			return all, fmt.Errorf("--service-account-signing-key-file: %w", err)
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return all, fmt.Errorf("--service-account-signing-key-file %s: a key of type %T cannot sign", k.signing, key)
		}
		all.Key = signer
	}
	for _, file := range k.others {
		read, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return all, fmt.Errorf("--service-account-key-file: %w", err)
		}
		for _, key := range read {
			all.OldKeys = append(all.OldKeys, key)
		}
	}
	return all, authn.CheckKeys(all)
}

// state tells the files as they are from what they are at another time.
func (k *keys) state() string {
	files := k.others
	if k.signing != "" {
		files = append([]string{k.signing}, files...)
	} else if k.own != nil {
		files = append(k.own.AccountKeyFiles(), files...)
	}
	var all strings.Builder
	for _, file := range files {
		fmt.Fprintf(&all, "%q", file)
		if at, err := os.Stat(file); err == nil {
			fmt.Fprintf(&all, " %d %d", at.Size(), at.ModTime().UnixNano())
			if sys, ok := at.Sys().(*syscall.Stat_t); ok {
				fmt.Fprintf(&all, " %d", sys.Ino)
			}
		}
	}
	return all.String()
}

// newer are the keys if their files have changed since they were last read. While these cannot be read, the
// keys stay what they were.
func (k *keys) newer() (authn.Keys, bool) {
	now := k.state()
	if seen := k.seen.Load(); seen != nil && *seen == now {
		return authn.Keys{}, false
	}
	all, err := k.read()
	if err != nil {
		if why := err.Error(); k.told.Load() == nil || *k.told.Load() != why {
			k.told.Store(&why)
			k.log.Error("keys of service accounts' tokens cannot be read; those of before hold", "err", err)
		}
		return authn.Keys{}, false
	}
	if k.seen.Swap(&now) != nil {
		k.log.Info("keys of service accounts' tokens were read again", "believed", len(all.OldKeys)+1)
	}
	k.told.Store(nil)
	return all, true
}

// Signer is the pin of the key that was said to sign tokens of service accounts, or by which flag another program signs
// them; empty: neither was said.
func (o *Options) Signer() (string, error) {
	if o.Endpoint != "" {
		return "--service-account-signing-endpoint", nil
	}
	if o.SigningKey == "" {
		return "", nil
	}
	all, err := (&keys{signing: o.SigningKey, others: o.Keys}).read()
	if err != nil {
		return "", err
	}
	return pki.PinOf(all.Key.Public())
}
