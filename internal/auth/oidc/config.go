package oidc

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/kemudi/kemudi/internal/reach/egress"
)

// Flags describe a single provider, each by its flag.
type Flags struct {
	IssuerURL      string            // --oidc-issuer-url
	ClientID       string            // --oidc-client-id: the audience of tokens
	UsernameClaim  string            // --oidc-username-claim; default sub
	UsernamePrefix string            // --oidc-username-prefix; default the issuer's URL and #, of e-mail addresses none; "-": none
	GroupsClaim    string            // --oidc-groups-claim
	GroupsPrefix   string            // --oidc-groups-prefix
	CAFile         string            // --oidc-ca-file; default the machine's authorities
	RequiredClaims map[string]string // --oidc-required-claim
	SigningAlgs    []string          // --oidc-signing-algs; default RS256
}

// FlagDefaults are what the flags show.
func FlagDefaults() Flags { return Flags{UsernameClaim: "sub", SigningAlgs: []string{"RS256"}} }

// Given reports whether any of the flags says something.
func (f *Flags) Given() bool {
	d := FlagDefaults()
	return f.IssuerURL+f.ClientID+f.UsernamePrefix+f.GroupsClaim+f.GroupsPrefix+f.CAFile != "" || len(f.RequiredClaims) > 0 ||
		f.UsernameClaim != "" && f.UsernameClaim != d.UsernameClaim || len(f.SigningAlgs) > 0 && !slices.Equal(f.SigningAlgs, d.SigningAlgs)
}

// Check says what is wrong with the flags.
func (f *Flags) Check() error {
	if f.Given() && (f.IssuerURL == "" || f.ClientID == "") {
		return errors.New("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")
	}
	for _, name := range f.SigningAlgs {
		if !slices.Contains(algorithms, name) {
			return fmt.Errorf("--oidc-signing-algs: unsupported signing alg: %q; there are %q", name, algorithms)
		}
	}
	return nil
}

// config is what a file would have to say to mean the same.
func (f *Flags) config() (*apiserver.AuthenticationConfiguration, error) {
	c := &apiserver.AuthenticationConfiguration{}
	if !f.Given() {
		return c, nil
	}
	claim, prefix := f.UsernameClaim, f.UsernamePrefix
	if claim == "" {
		claim = FlagDefaults().UsernameClaim
	}
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && claim != "email":
		prefix = f.IssuerURL + "#"
	}
	one := apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: f.IssuerURL, Audiences: []string{f.ClientID}},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: claim, Prefix: &prefix}},
	}
	if f.GroupsClaim != "" {
		prefix := f.GroupsPrefix
		one.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: f.GroupsClaim, Prefix: &prefix}
	}
	for _, name := range slices.Sorted(maps.Keys(f.RequiredClaims)) {
		one.ClaimValidationRules = append(one.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: name, RequiredValue: f.RequiredClaims[name]})
	}
	if f.CAFile != "" {
		text, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		one.Issuer.CertificateAuthority = string(text)
	}
	c.JWT = []apiserver.JWTAuthenticator{one}
	return c, nil
}

// newDecoder reads configurations of all versions, strictly.
func newDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
}

// parse reads a configuration; whether it makes sense is for [rules.mappers].
func parse(decoder runtime.Decoder, data []byte) (*apiserver.AuthenticationConfiguration, error) {
	if len(data) == 0 {
		return nil, errors.New("empty config data")
	}
	obj, err := runtime.Decode(decoder, data)
	if err != nil {
		return nil, err
	}
	c, ok := obj.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("expected AuthenticationConfiguration, got %T", obj)
	}
	return c, nil
}

// rules reads configurations and makes what is in them ready for use.
type rules struct {
	decoder  runtime.Decoder
	compiler authenticationcel.Compiler
	own      []string // names under which this cluster issues tokens itself

	egress        egress.Selection // nil: there is none
	anonymousSaid bool             // by a flag
}

// mappers are the compiled expressions of each issuer of c, in order.
func (r *rules) mappers(c *apiserver.AuthenticationConfiguration) ([]authenticationcel.CELMapper, error) {
	if len(c.JWT) > 0 && r.compiler == nil {
		r.compiler = authenticationcel.NewDefaultCompiler()
	}
	errs := validation.ValidateAuthenticationConfiguration(r.compiler, c, r.own)
	for i := range c.JWT {
		if way := c.JWT[i].Issuer.EgressSelectorType; way != "" && r.egress == nil {
			errs = append(errs, field.Invalid(field.NewPath("jwt").Index(i).Child("issuer", "egressSelectorType"), way, "this server has no egress selectors (--egress-selector-config-file): it reaches providers directly"))
		}
	}
	if c.Anonymous != nil && r.anonymousSaid {
		errs = append(errs, field.Forbidden(field.NewPath("anonymous"), "--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file"))
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	all := make([]authenticationcel.CELMapper, len(c.JWT))
	for i := range c.JWT {
		all[i], errs = validation.CompileAndValidateJWTAuthenticator(r.compiler, c.JWT[i], r.own)
		if len(errs) > 0 {
			return nil, errs.ToAggregate()
		}
	}
	return all, nil
}
