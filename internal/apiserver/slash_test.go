package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/auth/authn"
)

// issuer signs tokens with a key of its own.
func issuer(t *testing.T) *authn.Issuer {
	t.Helper()
	return issuerAs(t, authn.IssuerOptions{})
}

// issuerAs is an issuer with a key of its own.
func issuerAs(t *testing.T, o authn.IssuerOptions) *authn.Issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	o.Key = key
	i, err := authn.NewIssuer(o)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestPathsThatAreNoResourcesMayEndInASlash(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Tokens = issuer(t) })
	for _, path := range []string{"/version", "/.well-known/openid-configuration", "/openid/v1/jwks", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v2", "/openapi/v3"} {
		if got, want := f.must(200, "GET", path+"/", ""), f.must(200, "GET", path, ""); got != want {
			t.Errorf("%s/: got %.200s, want %.200s", path, got, want)
		}
	}
	for _, path := range []string{"/version/x", "/openid/v1/jwks/x", "/.well-known/openid-configuration/x", "/openid/v1/"} {
		f.must(404, "GET", path, "")
	}
}

func TestIssuersThatHaveAnAddressPublishTheirKeys(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Tokens = issuer(t) })
	for path, kind := range map[string]string{"/.well-known/openid-configuration": "application/json", "/openid/v1/jwks": "application/jwk-set+json"} {
		h := f.ask("GET", path, "").Header()
		if got, cached := h.Get("Content-Type"), h.Get("Cache-Control"); got != kind || cached != "public, max-age=3600" {
			t.Errorf("%s: got %s, %s, want %s that may be kept for an hour", path, got, cached, kind)
		}
		if root := f.must(200, "GET", "/", ""); !strings.Contains(root, `"`+path+`"`) {
			t.Errorf("/: got %s, want %s in it", root, path)
		}
	}
	for _, name := range []string{"cluster", "http://cluster.example.com", "https://cluster.example.com?a=b"} {
		f := newFixture(t, func(o *Options) { o.Tokens = issuerAs(t, authn.IssuerOptions{URL: name}) })
		f.must(404, "GET", "/.well-known/openid-configuration", "")
		f.must(404, "GET", "/openid/v1/jwks", "")
	}
}
