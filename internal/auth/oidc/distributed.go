package oidc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// endpoint is where a claim is told that a token has not itself.
type endpoint struct {
	URL         string `json:"endpoint"`
	AccessToken string `json:"access_token"`
}

// expand adds the claim of somebody's groups where the token says only who knows them: a distributed claim
// of OpenID Connect Core 1.0, 5.6.2.
func (i *issuer) expand(ctx context.Context, c claims) error {
	claim := i.rules.ClaimMappings.Groups.Claim
	if _, there := c[claim]; there || claim == "" {
		return nil
	}
	if _, distributed := c["_claim_names"]; !distributed {
		return nil
	}
	names := map[string]string{}
	if err := c.read("_claim_names", &names); err != nil {
		return fmt.Errorf("oidc: error parsing distributed claim names: %w", err)
	}
	if _, there := c["_claim_sources"]; !there {
		return errors.New("oidc: no claim sources")
	}
	var sources map[string]endpoint
	if err := c.read("_claim_sources", &sources); err != nil {
		return fmt.Errorf("oidc: could not parse claim sources: %w", err)
	}
	source, named := names[claim]
	if !named {
		return nil
	}
	at, there := sources[source]
	switch {
	case !there:
		return fmt.Errorf("id token _claim_names contained a source %s missing in _claims_sources", source)
	case at.URL == "":
		return nil // it may be in the token in another form
	}
	said, err := i.ask(ctx, at)
	if err != nil {
		return fmt.Errorf("while getting distributed claim %q: %w", claim, err)
	}
	value, there := said[claim]
	if !there {
		return fmt.Errorf("jwt returned by distributed claim endpoint %q did not contain claim: %v", at.URL, claim)
	}
	c[claim] = value
	return nil
}

// ask reads what an endpoint says, which is a token of its own issuer.
func (i *issuer) ask(ctx context.Context, at endpoint) (claims, error) {
	if u, err := url.Parse(at.URL); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no URL of scheme https", at.URL)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL, nil)
	if err != nil {
		return nil, err
	}
	if at.AccessToken != "" {
		r.Header.Set("Authorization", "Bearer "+at.AccessToken)
	}
	token, err := i.keys.read(r)
	if err != nil {
		return nil, err
	}
	by := issuerOf(string(token))
	keys := i.keys
	if by != i.keys.issuer {
		if keys, err = i.other(by); err != nil {
			return nil, err
		}
	}
	said, err := i.good(ctx, string(token), keys)
	if errors.Is(err, errNotInitialized) {
		return nil, fmt.Errorf("verifier not initialized for issuer: %q", by)
	}
	if err != nil {
		return nil, fmt.Errorf("verify distributed claim token: %w", err)
	}
	return said, nil
}
