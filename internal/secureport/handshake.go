package secureport

import (
	"crypto/tls"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// Handshake is what a port demands of who connects, and which certificates it has for whom. The zero value:
// version 1.2 of TLS, what Go thinks good, and one certificate for all.
type Handshake struct {
	MinVersion uint16        // --tls-min-version
	Ciphers    []uint16      // --tls-cipher-suites: of version 1.2
	Curves     []tls.CurveID // --tls-curve-preferences: in whatever order
	Named      []Named       // --tls-sni-cert-key
}

// AddFlags adds upstream's flags of what is demanded.
func (h *Handshake) AddFlags(f *pflag.FlagSet) {
	f.Var((*version)(&h.MinVersion), "tls-min-version", "least version of TLS that clients must speak: VersionTLS12, which is the default, or VersionTLS13")
	f.Var((*ciphers)(&h.Ciphers), "tls-cipher-suites", "cipher suites of TLS 1.2 that are taken; default those that are good")
	f.Var((*curves)(&h.Curves), "tls-curve-preferences", "ways to agree on keys that are taken, by their numbers (X25519MLKEM768 is 4588, X25519 29, P-256 23): the best of those that the client knows is used; default those that are good")
}

// AddNamedFlag adds the flag of certificates for some names.
func (h *Handshake) AddNamedFlag(f *pflag.FlagSet) {
	f.Var((*namedList)(&h.Named), "tls-sni-cert-key", "files of a certificate and its key for clients that ask for certain names, crt,key or crt,key:*.example.com,10.0.0.1: default the names in the certificate; may be given several times, the first that fits is shown")
}

// required are the suites of which HTTP/2 over TLS 1.2 wants one.
var required = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}

// Check says what is wrong with it.
func (h *Handshake) Check() error {
	has := func(suite uint16) bool { return slices.Contains(h.Ciphers, suite) }
	if len(h.Ciphers) > 0 && h.MinVersion < tls.VersionTLS13 && !slices.ContainsFunc(required, has) {
		return fmt.Errorf("--tls-cipher-suites: HTTP/2 needs %s or %s among them, or --tls-min-version VersionTLS13", tls.CipherSuiteName(required[0]), tls.CipherSuiteName(required[1]))
	}
	return nil
}

// Config is what connections are taken with. serving is the certificate for all who ask for no name
// that another one is for.
func (h *Handshake) Config(serving func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (*tls.Config, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	if len(h.Named) > 0 {
		show, err := newShow(h.Named)
		if err != nil {
			return nil, err
		}
		show.other, serving = serving, show.certificate
	}
	return &tls.Config{
		MinVersion: max(h.MinVersion, tls.VersionTLS12), CipherSuites: h.Ciphers, CurvePreferences: h.Curves, GetCertificate: serving,
	}, nil
}
