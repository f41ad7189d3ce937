package acme

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"

	"github.com/kemudi/kemudi/internal/version"
)

const (
	orderTimeout   = 3 * time.Minute
	requestTimeout = 30 * time.Second
)

// order has the server sign a certificate for hosts, and returns its chain and key in PEM.
func order(ctx context.Context, o Options, account crypto.Signer, hosts []string) (chain, key []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	if o.CAFile != "" {
		data, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, nil, fmt.Errorf("read --acme-ca-file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(data) {
			return nil, nil, fmt.Errorf("--acme-ca-file %s has no certificate", o.CAFile)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	print, err := thumbprint(account)
	if err != nil {
		return nil, nil, err
	}
	c := &acmez.Client{
		Client: &acme.Client{
			Directory: o.directory(), HTTPClient: &http.Client{Transport: transport, Timeout: requestTimeout},
			UserAgent: "kemudi/" + version.Git(), Logger: slog.New(slog.DiscardHandler), // errors are told once, by the controller
		},
		ChallengeSolvers: map[string]acmez.Solver{acme.ChallengeTypeHTTP01: edges(print)},
	}
	who := acme.Account{TermsOfServiceAgreed: true, PrivateKey: account}
	if o.Email != "" {
		who.Contact = []string{"mailto:" + o.Email}
	}
	if who, err = c.NewAccount(ctx, who); err != nil { // or finds the one that there is
		return nil, nil, fmt.Errorf("open an account at %s: %w", o.directory(), err)
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	found, err := c.ObtainCertificateForSANs(ctx, who, own, hosts)
	if err != nil {
		return nil, nil, err
	}
	if len(found) == 0 {
		return nil, nil, errors.New("the server has signed, and given no certificate")
	}
	key, err = encodeKey(own)
	return found[0].ChainPEM, key, err
}

// refused says that a server has answered and does not want to sign.
func refused(err error) bool {
	problem := acme.Problem{}
	return errors.As(err, &problem)
}

// edges answer challenges by themselves: each does who knows the thumbprint.
type edges string

// Present is called before the server asks.
func (e edges) Present(_ context.Context, c acme.Challenge) error {
	if c.KeyAuthorization != c.Token+"."+string(e) {
		return errors.New("the challenge is not of the account whose thumbprint the edges know")
	}
	return nil
}

// CleanUp is called afterwards. There is nothing to be cleaned up.
func (edges) CleanUp(context.Context, acme.Challenge) error { return nil }

// thumbprint is that of a key (RFC 7638).
func thumbprint(key crypto.Signer) (string, error) {
	jwk := jose.JSONWebKey{Key: key.Public()}
	sum, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("make the thumbprint of the account's key: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(sum), nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func decodeKey(data []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil || !strings.HasSuffix(block.Type, "PRIVATE KEY") {
		return nil, errors.New("it is no private key in PEM")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}
