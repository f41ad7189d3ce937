package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/kemudi/kemudi/internal/reach/egress"
	"github.com/kemudi/kemudi/internal/task"
)

// source is where the keys of an issuer are found.
type source struct {
	issuer    string
	discovery string // where it says so; empty: below its URL
	authority string // certificates of its authorities, in PEM; empty: the machine's
	egress    string // by which egress selection it is reached; empty: directly
}

// provider fetches and keeps the keys by which one issuer signs.
type provider struct {
	source
	client  *http.Client
	metrics *metrics
	log     *slog.Logger
	want    chan struct{} // a token: somebody has use for newer keys

	mu struct {
		sync.Mutex
		keys    []jose.JSONWebKey
		fetched time.Time     // when these were; zero: never
		failing bool          // the last try has come to nothing
		next    chan struct{} // closed when the next try that begins has ended
	}
}

// What may be expected of a provider.
const (
	keyTimeout  = 10 * time.Second // for each document
	maxDocument = 1 << 20          // bytes
	keyAge      = 10 * time.Minute // keys that are used are fetched again after that
	restAtLeast = time.Second      // between two tries
)

func newProvider(from source, dial egress.Dial, m *metrics, log *slog.Logger) (*provider, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if from.authority != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(from.authority)) {
			return nil, errors.New("certificateAuthority: there is no certificate in it")
		}
	}
	p := &provider{source: from, metrics: m, log: log.With("issuer", from.issuer), want: make(chan struct{}, 1)} // a full one says enough
	p.client = &http.Client{
		Timeout:   keyTimeout,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dial, TLSClientConfig: config, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute, MaxIdleConns: 2, TLSHandshakeTimeout: keyTimeout},
		CheckRedirect: func(r *http.Request, before []*http.Request) error {
			if r.URL.Scheme != "https" || len(before) > 5 {
				return fmt.Errorf("redirected to %s", r.URL.Redacted())
			}
			return nil
		},
	}
	p.mu.next = make(chan struct{})
	return p, nil
}

// run fetches the keys until that has worked once, and then when somebody wants newer ones.
func (p *provider) run(ctx context.Context) error {
	defer p.client.CloseIdleConnections()
	pause := task.Backoff{Initial: restAtLeast, Max: 10 * time.Second, Jitter: 0.2}
	at := "" // where the keys are
	for ctx.Err() == nil {
		end := p.begin()
		keys, err := p.fetch(ctx, &at)
		if ctx.Err() != nil {
			return nil
		}
		rest := restAtLeast
		if err != nil {
			rest, at = pause.Next(), "" // it may have moved
		} else {
			pause.Reset()
		}
		again := p.ended(keys, err)
		close(end)
		if task.Sleep(ctx, rest) != nil || again {
			continue
		}
		select {
		case <-p.want:
		case <-ctx.Done():
		}
	}
	return nil
}

// begin begins a try; what it returns is to be closed at its end.
func (p *provider) begin() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := p.mu.next
	p.mu.next = make(chan struct{})
	return end
}

// ended takes in what has come of a try, and reports whether there are no keys still.
func (p *provider) ended(keys []jose.JSONWebKey, err error) (none bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		if p.mu.failing {
			p.log.Info("the keys of an OpenID provider can be fetched again")
		}
		p.mu.keys, p.mu.fetched, p.mu.failing = keys, time.Now(), false
		return false
	}
	if !p.mu.failing {
		p.log.Warn("fetch the keys of an OpenID provider; this is tried again", "err", err)
	}
	p.mu.failing = true
	return p.mu.fetched.IsZero()
}

// fetch reads where the keys are, unless that is known, and the keys.
func (p *provider) fetch(ctx context.Context, at *string) ([]jose.JSONWebKey, error) {
	if *at == "" {
		found, err := p.discover(ctx)
		if err != nil {
			return nil, err
		}
		*at = found
	}
	data, err := p.get(ctx, *at)
	var keys []jose.JSONWebKey
	if err == nil {
		keys, err = parseKeys(data)
	}
	p.metrics.fetched(p.issuer, data, err)
	return keys, err
}

// discover reads the provider's document about itself.
func (p *provider) discover(ctx context.Context) (keys string, err error) {
	where := p.discovery
	if where == "" {
		where = strings.TrimSuffix(p.issuer, "/") + "/.well-known/openid-configuration"
	}
	data, err := p.get(ctx, where)
	if err != nil {
		return "", err
	}
	var says struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(data, &says); err != nil {
		return "", fmt.Errorf("%s: %w", where, err)
	}
	if says.Issuer != p.issuer {
		return "", fmt.Errorf("oidc: issuer did not match the issuer returned by provider, expected %q got %q", p.issuer, says.Issuer)
	}
	if u, err := url.Parse(says.Keys); err != nil || u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%s: its jwks_uri %q is no URL of scheme https", where, says.Keys)
	}
	return says.Keys, nil
}

// get reads a document of the provider (O2).
func (p *provider) get(ctx context.Context, where string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	return p.read(r)
}

func (p *provider) read(r *http.Request) ([]byte, error) {
	res, err := p.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", r.URL.Redacted(), res.Status)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.URL.Redacted(), err)
	}
	if len(data) > maxDocument {
		return nil, fmt.Errorf("%s is larger than %d bytes", r.URL.Redacted(), maxDocument)
	}
	return data, nil
}

// parseKeys reads a JSON Web Key Set. What does not sign, or is of a kind that nobody knows here, is left out.
func parseKeys(data []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("read a key set: %w", err)
	}
	var keys []jose.JSONWebKey
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(text) != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		switch key.Key.(type) {
		case *rsa.PublicKey, *ecdsa.PublicKey:
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// errNotInitialized says that the provider has not answered yet.
var errNotInitialized = errors.New("oidc: authenticator not initialized")

// verify checks who has signed, with newer keys if the known ones are not those (O1).
func (p *provider) verify(ctx context.Context, signed *jose.JSONWebSignature) error {
	keys, known := p.known()
	if !known {
		p.wake()
		return errNotInitialized
	}
	if signedBy(signed, keys) {
		return nil
	}
	if p.renew(ctx) {
		if keys, _ = p.known(); signedBy(signed, keys) {
			return nil
		}
	}
	return errors.New("failed to verify signature: failed to verify id token signature")
}

func signedBy(signed *jose.JSONWebSignature, keys []jose.JSONWebKey) bool {
	id := signed.Signatures[0].Header.KeyID
	return slices.ContainsFunc(keys, func(key jose.JSONWebKey) bool {
		if id != "" && key.KeyID != id {
			return false
		}
		_, err := signed.Verify(key.Key)
		return err == nil
	})
}

// known are the keys as they were last fetched. Those that are old are fetched again meanwhile.
func (p *provider) known() (keys []jose.JSONWebKey, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.fetched.IsZero() {
		return nil, false
	}
	if time.Since(p.mu.fetched) > keyAge {
		p.wake()
	}
	return p.mu.keys, true
}

func (p *provider) wake() {
	select {
	case p.want <- struct{}{}:
	default: // it has been told
	}
}

// renew waits until the keys were fetched anew, and reports whether that may have come to something. It does not
// wait for a provider that has just failed.
func (p *provider) renew(ctx context.Context) bool {
	p.mu.Lock()
	next, failing := p.mu.next, p.mu.failing
	p.mu.Unlock()
	p.wake()
	if failing {
		return false
	}
	limit := time.NewTimer(keyTimeout)
	defer limit.Stop()
	select {
	case <-next:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	return false
}
