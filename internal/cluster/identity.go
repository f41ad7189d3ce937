package cluster

import (
	"crypto"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
)

// Identity says who is believed besides the cluster's own certificates, and what
// tokens of service accounts are, each field by its flag. The zero value has the
// defaults.
type Identity struct {
	FrontProxy FrontProxy

	SigningKey  string        // --service-account-signing-key-file: signs tokens; default the server's own
	Keys        []string      // --service-account-key-file: others have signed tokens that are good
	MaxLife     time.Duration // --service-account-max-token-expiration; default no bound
	NoExtension bool          // --service-account-extend-token-expiration=false
	Audiences   []string      // --api-audiences; default the issuer
}

// FrontProxy says which proxy is believed that tells for whom a request is.
type FrontProxy struct {
	CA      string   // --requestheader-client-ca-file: signs the proxy's certificate; empty: there is none
	Names   []string // --requestheader-allowed-names: common names of it; none: any
	Headers authn.FrontProxyHeaders
}

func (i *Identity) check() error {
	// Upstream's bounds: agents renew tokens that live shorter all the time.
	if i.MaxLife != 0 && (i.MaxLife < time.Hour || i.MaxLife > time.Second<<32) {
		return errors.New("--service-account-max-token-expiration must be between 1 hour and 2^32 seconds")
	}
	f := &i.FrontProxy
	if f.CA == "" && (len(f.Names) > 0 || f.Headers.Given()) {
		return errors.New("the flags --requestheader-... need --requestheader-client-ca-file: nobody else is believed")
	}
	return nil
}

// issuer is the options of who issues tokens; own is the server's own key.
func (i *Identity) issuer(own crypto.Signer) (authn.IssuerOptions, error) {
	o := authn.IssuerOptions{Key: own, MaxLife: i.MaxLife, NoExtension: i.NoExtension, Audiences: i.Audiences}
	if i.SigningKey != "" {
		key, err := keyutil.PrivateKeyFromFile(i.SigningKey)
		if err != nil {
			return o, fmt.Errorf("--service-account-signing-key-file: %w", err)
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return o, fmt.Errorf("--service-account-signing-key-file %s: a key of type %T cannot sign", i.SigningKey, key)
		}
		o.Key = signer
	}
	for _, file := range i.Keys {
		keys, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return o, fmt.Errorf("--service-account-key-file: %w", err)
		}
		for _, key := range keys {
			o.OldKeys = append(o.OldKeys, key)
		}
	}
	return o, nil
}

// signer is the pin of the key that was said to sign tokens of service accounts; empty: none was.
func (i *Identity) signer() (string, error) {
	if i.SigningKey == "" {
		return "", nil
	}
	o, err := i.issuer(nil)
	if err != nil {
		return "", err
	}
	return pki.PinOf(o.Key.Public())
}
