package identity

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/oidc"
	"github.com/kemudi/kemudi/internal/auth/signer"
)

// Options say who is believed besides the cluster's own certificates, and what
// tokens of service accounts are, each field by its flag. The zero value has the
// defaults.
type Options struct {
	FrontProxy FrontProxy

	SigningKey  string        // --service-account-signing-key-file: signs tokens; default the server's own
	Endpoint    string        // --service-account-signing-endpoint: socket of who signs them instead of the server
	Keys        []string      // --service-account-key-file: others have signed tokens that are good
	MaxLife     time.Duration // --service-account-max-token-expiration; default no bound
	NoExtension bool          // --service-account-extend-token-expiration=false
	Audiences   []string      // --api-audiences; default the issuers
	Issuers     []string      // --service-account-issuer: the first issues tokens, all are believed; default the cluster's name of the API
	KeySetURL   string        // --service-account-jwks-uri: where others are told to find the keys; default at the advertised address

	Anonymous  *bool                // --anonymous-auth; nil: it was not said, and who shows nothing is let in
	ConfigFile string               // --authentication-config
	OIDC       oidc.Flags           // --oidc-...
	TokenFile  string               // --token-auth-file
	Webhook    authn.WebhookOptions // --authentication-token-webhook-...
}

// FrontProxy says which proxy is believed that tells for whom a request is.
type FrontProxy struct {
	CA      string   // --requestheader-client-ca-file: signs the proxy's certificate; empty: there is none
	Names   []string // --requestheader-allowed-names: common names of it; none: any
	Headers authn.FrontProxyHeaders
}

// Defaults are the options as their flags show them.
func Defaults() Options {
	return Options{OIDC: oidc.FlagDefaults(), Webhook: authn.WebhookDefaults()}
}

// Check says what is wrong with the options, as far as files need not be read.
func (o *Options) Check() error {
	// Upstream's bounds: agents renew tokens that live shorter all the time.
	if o.MaxLife != 0 && (o.MaxLife < time.Hour || o.MaxLife > time.Second<<32) {
		return errors.New("--service-account-max-token-expiration must be between 1 hour and 2^32 seconds")
	}
	if err := o.checkEndpoint(); err != nil {
		return err
	}
	f := &o.FrontProxy
	if f.CA == "" && (len(f.Names) > 0 || f.Headers.Given()) {
		return errors.New("the flags --requestheader-... need --requestheader-client-ca-file: nobody else is believed")
	}
	for i, name := range o.Issuers {
		if name == "" {
			return errors.New("--service-account-issuer can't be an empty string")
		}
		if slices.Contains(o.Issuers[:i], name) {
			return fmt.Errorf("--service-account-issuer %q is already specified", name)
		}
		if _, err := url.Parse(name); err != nil && strings.Contains(name, ":") {
			return fmt.Errorf("--service-account-issuer %q contained a ':' but was not a valid URL: %w", name, err)
		}
	}
	if o.KeySetURL != "" {
		u, err := url.Parse(o.KeySetURL)
		if err != nil {
			return fmt.Errorf("--service-account-jwks-uri must be a valid URL: %w", err)
		}
		if u.Scheme != "https" {
			return fmt.Errorf("--service-account-jwks-uri requires https scheme, parsed as: %v", u)
		}
	}
	if o.ConfigFile != "" && o.OIDC.Given() {
		return errors.New("--authentication-config file and --oidc-* flags are mutually exclusive")
	}
	if err := o.OIDC.Check(); err != nil {
		return err
	}
	return o.Webhook.Check()
}

// checkEndpoint says what is wrong with the signer that is named.
func (o *Options) checkEndpoint() error {
	if o.Endpoint == "" {
		return nil
	}
	if o.SigningKey != "" || len(o.Keys) > 0 {
		return errors.New("can't set --service-account-signing-key-file and/or --service-account-key-file with --service-account-signing-endpoint: they are mutually exclusive")
	}
	if err := signer.CheckEndpoint(o.Endpoint); err != nil {
		return fmt.Errorf("--service-account-signing-endpoint: %w", err)
	}
	return nil
}
