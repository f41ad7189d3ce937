package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/spf13/pflag"
)

// inPod is where a pod finds its own credentials.
const inPod = "/var/run/secrets/kubernetes.io/serviceaccount/"

// algorithms are those that issuers of service account tokens sign by.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256}

// issuerDiscovery finds the keys of a token's issuer as OpenID Connect
// says, and checks the token by them.
func issuerDiscovery(args []string) int {
	var path, audience string
	flags("test-service-account-issuer-discovery", args, func(f *pflag.FlagSet) {
		f.StringVar(&path, "token-path", inPod+"token", "file of the token to check")
		f.StringVar(&audience, "audience", "", "who the token must be for")
	})
	raw, err := os.ReadFile(path)
	if err != nil {
		fail("%v", err)
	}
	token, err := jwt.ParseSigned(string(raw), algorithms)
	if err != nil {
		fail("parse %s: %v", path, err)
	}
	var said jwt.Claims
	if err := token.UnsafeClaimsWithoutVerification(&said); err != nil {
		fail("read claims: %v", err)
	}
	fmt.Println("issuer:", said.Issuer)
	var found struct {
		Issuer     string   `json:"issuer"`
		JWKSURI    string   `json:"jwks_uri"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}
	fetch(said.Issuer+"/.well-known/openid-configuration", &found)
	if found.Issuer != said.Issuer || !slices.Contains(found.Algorithms, token.Headers[0].Algorithm) {
		fail("%s says that it is %q with the algorithms %v; the token is signed by %s", said.Issuer, found.Issuer, found.Algorithms, token.Headers[0].Algorithm)
	}
	var keys jose.JSONWebKeySet
	fetch(found.JWKSURI, &keys)
	var claims jwt.Claims
	if err := token.Claims(&keys, &claims); err != nil {
		fail("check the signature: %v", err)
	}
	want := jwt.Expected{Issuer: found.Issuer, Time: time.Now()}
	if audience != "" {
		want.AnyAudience = jwt.Audience{audience}
	}
	if err := claims.Validate(want); err != nil {
		fail("check the claims: %v", err)
	}
	fmt.Println("completed: the token of", claims.Subject, "is good")
	return 0
}

// fetch reads a document as the pod's service account.
func fetch(url string, into any) {
	ca, err := os.ReadFile(inPod + "ca.crt")
	if err != nil {
		fail("%v", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	own, err := os.ReadFile(inPod + "token")
	if err != nil {
		fail("%v", err)
	}
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		fail("%v", err)
	}
	r.Header.Set("Authorization", "Bearer "+string(own))
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	res, err := client.Do(r)
	if err != nil {
		fail("%v", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		fail("%s: %s", url, res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		fail("%s: %v", url, err)
	}
}
