// Package openid is an OpenID provider for tests: a real HTTP server with TLS on the loopback, that
// exchanges its keys, goes down, hangs and lies when it is told to.
package openid

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Provider is a provider that runs until its test ends.
type Provider struct {
	URL string
	CA  []byte // certificate of its authority, in PEM

	t   testing.TB
	srv *httptest.Server
	mu  struct {
		sync.Mutex
		key     crypto.Signer
		alg     jose.SignatureAlgorithm
		id      int
		issuer  string
		down    bool
		fetched int
		also    map[string]http.HandlerFunc
	}
}

// New returns a provider that signs by RS256.
func New(t testing.TB) *Provider {
	t.Helper()
	p := &Provider{t: t}
	p.srv = httptest.NewTLSServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.srv.Close)
	p.URL = p.srv.URL
	p.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.srv.Certificate().Raw})
	p.mu.issuer, p.mu.also = p.URL, map[string]http.HandlerFunc{}
	p.Rotate(jose.RS256)
	return p
}

// Rotate makes a new key for that algorithm. The one before is published no more.
func (p *Provider) Rotate(alg jose.SignatureAlgorithm) {
	p.t.Helper()
	var key crypto.Signer
	var err error
	switch alg {
	case jose.ES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.ES384:
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	default:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.key, p.mu.alg = key, alg
	p.mu.id++
}

// Say has its document call it by that name.
func (p *Provider) Say(issuer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.issuer = issuer
}

// Down has it answer nothing but errors.
func (p *Provider) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.down = true
}

// Up has it work again.
func (p *Provider) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.down = false
}

// Fetched is how often somebody has had its keys.
func (p *Provider) Fetched() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.fetched
}

// Also has it serve something else at a path.
func (p *Provider) Also(path string, h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.also[path] = h
}

// Token signs a token that says so, and iss and exp where these are not said.
func (p *Provider) Token(claims map[string]any) string {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]any{"iss": p.URL, "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: p.mu.alg, Key: jose.JSONWebKey{Key: p.mu.key, KeyID: strconv.Itoa(p.mu.id)}}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(all).Serialize()
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

func (p *Provider) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	down, also, issuer := p.mu.down, p.mu.also[r.URL.Path], p.mu.issuer
	keys := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.mu.key.Public(), KeyID: strconv.Itoa(p.mu.id), Algorithm: string(p.mu.alg), Use: "sig"}}}
	if r.URL.Path == "/keys" && !down {
		p.mu.fetched++
	}
	p.mu.Unlock()
	var answer any
	switch {
	case down:
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	case also != nil:
		also(w, r)
		return
	case r.URL.Path == "/.well-known/openid-configuration" || r.URL.Path == "/elsewhere":
		answer = map[string]any{"issuer": issuer, "jwks_uri": p.URL + "/keys"}
	case r.URL.Path == "/keys":
		answer = keys
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		fmt.Fprintln(w, err)
	}
}
