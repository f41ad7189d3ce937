package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"testing"

	"github.com/kemudi/kemudi/internal/auth/authn"
)

// issuer signs tokens with a key of its own.
func issuer(t *testing.T) *authn.Issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i, err := authn.NewIssuer(authn.IssuerOptions{Key: key})
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
