package oidc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"
)

// algorithms are those that tokens may be signed by: none that needs a secret on both sides.
var algorithms = []string{"ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"}

// issuer knows people by the tokens of one issuer.
type issuer struct {
	rules    *apiserver.JWTAuthenticator
	mapper   authenticationcel.CELMapper
	keys     *provider
	accepted []jose.SignatureAlgorithm
	other    func(issuer string) (*provider, error) // the keys of who else says what somebody's groups are
}

// claims are what a token says, by name.
type claims map[string]json.RawMessage

// read reads the claim into v.
func (c claims) read(name string, v any) error {
	text, ok := c[name]
	if !ok {
		return errors.New("claim not present")
	}
	return json.Unmarshal(text, v)
}

// words is a claim of one word or of a list.
type words []string

// UnmarshalJSON reads either.
func (w *words) UnmarshalJSON(text []byte) error {
	var list []string
	if json.Unmarshal(text, &list) == nil {
		*w = list
		return nil
	}
	var one string
	if err := json.Unmarshal(text, &one); err != nil {
		return err
	}
	*w = words{one}
	return nil
}

// standard are the claims by which a token is held to be good.
type standard struct {
	Issuer    string      `json:"iss"`
	Audience  words       `json:"aud"`
	Expiry    json.Number `json:"exp"`
	NotBefore json.Number `json:"nbf"`
}

// maxToken bounds what is looked at, in bytes: more than a header of a request holds.
const maxToken = 1 << 20

// payload reads what a token says, of which nothing is proved.
func payload(token string) ([]byte, error) {
	if len(token) > maxToken {
		return nil, errors.New("token is too long")
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, errors.New("malformed token")
	}
	return base64.RawURLEncoding.DecodeString(parts[1])
}

// issuerOf is who a token says has issued it; empty if that cannot be read.
func issuerOf(token string) string {
	data, err := payload(token)
	if err != nil {
		return ""
	}
	var says struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(data, &says) != nil {
		return ""
	}
	if says.Issuer == "accounts.google.com" { // as it once did
		return "https://accounts.google.com"
	}
	return says.Issuer
}

// notBeforeLeeway is how far clocks may be apart.
const notBeforeLeeway = 5 * time.Minute

// seconds reads a time; what is too far away is as far as can be.
func seconds(n json.Number) (time.Time, error) {
	if n == "" {
		return time.Time{}, nil
	}
	f, err := n.Float64()
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(int64(max(min(f, 1<<52), -(1<<52))), 0), nil
}

// good checks what a token says of itself, and who has signed it.
func (i *issuer) good(ctx context.Context, token string, keys *provider) (claims, error) {
	data, err := payload(token)
	if err != nil {
		return nil, fmt.Errorf("malformed jwt: %w", err)
	}
	var s standard
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("failed to unmarshal claims: %w", err)
	}
	if wanted := i.rules.Issuer.Audiences; !slices.ContainsFunc(s.Audience, func(a string) bool { return slices.Contains(wanted, a) }) {
		return nil, fmt.Errorf("expected audience in %q got %q", wanted, []string(s.Audience))
	}
	now := time.Now()
	ends, err := seconds(s.Expiry)
	if err != nil {
		return nil, fmt.Errorf("failed to unmarshal claims: exp: %w", err)
	}
	begins, err := seconds(s.NotBefore)
	switch {
	case err != nil:
		return nil, fmt.Errorf("failed to unmarshal claims: nbf: %w", err)
	case now.After(ends):
		return nil, fmt.Errorf("token is expired (Token Expiry: %v)", ends)
	case now.Add(notBeforeLeeway).Before(begins):
		return nil, fmt.Errorf("current time %v before the nbf (not before) time: %v", now, begins)
	}
	signed, err := jose.ParseSignedCompact(token, i.accepted)
	if err != nil {
		return nil, fmt.Errorf("malformed jwt: %w", err)
	}
	if err := keys.verify(ctx, signed); err != nil {
		return nil, err
	}
	var c claims
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("failed to unmarshal claims: %w", err)
	}
	return c, nil
}

// authenticate says whose token it is that bears this issuer's name.
func (i *issuer) authenticate(ctx context.Context, token string) (*authenticator.Response, error) {
	c, err := i.good(ctx, token, i.keys)
	if errors.Is(err, errNotInitialized) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("oidc: verify token: oidc: %w", err)
	}
	if err := i.expand(ctx, c); err != nil {
		return nil, fmt.Errorf("oidc: could not expand distributed claims: %w", err)
	}
	e := evaluation{claims: c, mapper: &i.mapper, rules: i.rules}
	u, err := e.user(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.valid(ctx, u); err != nil {
		return nil, err
	}
	return &authenticator.Response{User: u}, nil
}

// evaluation makes a user of what a token says.
type evaluation struct {
	claims claims
	mapper *authenticationcel.CELMapper
	rules  *apiserver.JWTAuthenticator
	value  claimsValue // what expressions see; made for the first of them
}

func (e *evaluation) user(ctx context.Context) (*user.DefaultInfo, error) {
	u := &user.DefaultInfo{}
	var err error
	if u.Name, err = e.name(ctx); err != nil {
		return nil, err
	}
	if u.Groups, err = e.groups(ctx); err != nil {
		return nil, err
	}
	if u.UID, err = e.uid(ctx); err != nil {
		return nil, err
	}
	u.Extra, err = e.extra(ctx)
	return u, err
}

func (e *evaluation) name(ctx context.Context) (string, error) {
	if e.mapper.Username != nil {
		name, err := e.word(ctx, e.mapper.Username)
		switch {
		case err != nil:
			return "", fmt.Errorf("oidc: error evaluating username claim expression: %w", err)
		case name == "":
			return "", errors.New("oidc: empty username via CEL expression is not allowed")
		}
		return name, nil
	}
	m := &e.rules.ClaimMappings.Username
	var name string
	if err := e.claims.read(m.Claim, &name); err != nil {
		return "", fmt.Errorf("oidc: parse username claims %q: %w", m.Claim, err)
	}
	if _, said := e.claims["email_verified"]; said && m.Claim == "email" {
		var verified bool
		if err := e.claims.read("email_verified", &verified); err != nil {
			return "", fmt.Errorf("oidc: parse 'email_verified' claim: %w", err)
		}
		if !verified {
			return "", errors.New("oidc: email not verified")
		}
	}
	if m.Prefix != nil {
		name = *m.Prefix + name
	}
	return name, nil
}

func (e *evaluation) groups(ctx context.Context) ([]string, error) {
	m := &e.rules.ClaimMappings.Groups
	if _, there := e.claims[m.Claim]; there && m.Claim != "" {
		var groups words
		if err := e.claims.read(m.Claim, &groups); err != nil {
			return nil, fmt.Errorf("oidc: parse groups claim %q: %w", m.Claim, err)
		}
		if m.Prefix != nil {
			for i, g := range groups {
				groups[i] = *m.Prefix + g
			}
		}
		return groups, nil
	}
	if e.mapper.Groups == nil {
		return nil, nil
	}
	groups, err := e.wordsOf(ctx, e.mapper.Groups)
	if err != nil {
		return nil, fmt.Errorf("oidc: error evaluating group claim expression: %w", err)
	}
	return groups, nil
}

func (e *evaluation) uid(ctx context.Context) (string, error) {
	if m := &e.rules.ClaimMappings.UID; m.Claim != "" {
		var uid string
		if err := e.claims.read(m.Claim, &uid); err != nil {
			return "", fmt.Errorf("oidc: parse uid claim %q: %w", m.Claim, err)
		}
		return uid, nil
	}
	if e.mapper.UID == nil {
		return "", nil
	}
	uid, err := e.word(ctx, e.mapper.UID)
	if err != nil {
		return "", fmt.Errorf("oidc: error evaluating uid claim expression: %w", err)
	}
	return uid, nil
}

func (e *evaluation) extra(ctx context.Context) (map[string][]string, error) {
	var extra map[string][]string
	add := func(key string, values []string) {
		if extra == nil {
			extra = map[string][]string{}
		}
		extra[key] = values
	}
	var id string
	if e.claims.read("jti", &id) == nil && id != "" {
		add(user.CredentialIDKey, []string{"JTI=" + id})
	}
	if e.mapper.Extra == nil {
		return extra, nil
	}
	found, err := e.extras(ctx)
	if err != nil {
		return nil, err
	}
	for key, values := range found {
		if len(values) > 0 {
			add(key, values)
		}
	}
	return extra, nil
}

// valid holds a user and what the token says against the rules.
func (e *evaluation) valid(ctx context.Context, u *user.DefaultInfo) error {
	for _, rule := range e.rules.ClaimValidationRules {
		if rule.Claim == "" {
			continue
		}
		if _, there := e.claims[rule.Claim]; !there {
			return fmt.Errorf("oidc: required claim %s not present in ID token", rule.Claim)
		}
		var value string
		if err := e.claims.read(rule.Claim, &value); err != nil {
			return fmt.Errorf("oidc: parse claim %s: %w", rule.Claim, err)
		}
		if value != rule.RequiredValue {
			return fmt.Errorf("oidc: required claim %s value does not match. Got = %s, want = %s", rule.Claim, value, rule.RequiredValue)
		}
	}
	if e.mapper.ClaimValidationRules != nil {
		results, err := e.mapper.ClaimValidationRules.EvalClaimMappings(ctx, e.seen())
		if err == nil {
			err = allTrue(results)
		}
		if err != nil {
			return fmt.Errorf("oidc: error evaluating claim validation expression: %w", err)
		}
	}
	if e.mapper.UserValidationRules != nil {
		results, err := e.mapper.UserValidationRules.EvalUser(ctx, userValue(u))
		if err == nil {
			err = allTrue(results)
		}
		if err != nil {
			return fmt.Errorf("oidc: error evaluating user info validation rule: %w", err)
		}
	}
	return nil
}
