package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/cluster"
)

// addIdentityFlags adds the flags that say who is believed.
func addIdentityFlags(f *pflag.FlagSet, o *cluster.Identity) {
	f.StringVar(&o.SigningKey, "service-account-signing-key-file", o.SigningKey, "file of the key that signs tokens of service accounts; default the server's own, pki/sa.key of the data directory")
	f.StringVar(&o.Endpoint, "service-account-signing-endpoint", o.Endpoint, "socket of a program that signs tokens of service accounts and says by which keys they are good, instead of files of keys: a path, or @name of an abstract one")
	f.StringSliceVar(&o.Keys, "service-account-key-file", o.Keys, "files of keys, public or private, that have signed other tokens that are good")
	f.StringSliceVar(&o.Issuers, "service-account-issuer", o.Issuers, "who issues tokens of service accounts, as they say: the first one, of several, of which all are believed; default https://kubernetes.default.svc.<cluster domain>")
	f.StringVar(&o.KeySetURL, "service-account-jwks-uri", o.KeySetURL, "where others are told to find the keys that these tokens are signed by; default at the advertised address")
	f.DurationVar(&o.MaxLife, "service-account-max-token-expiration", o.MaxLife, "how long tokens of service accounts are good for at the most; default as long as was asked for")
	f.VarPF((*notFlag)(&o.NoExtension), "service-account-extend-token-expiration", "", "make tokens of pods good for a year, for programs that do not read them again").NoOptDefVal = "true"
	f.StringSliceVar(&o.Audiences, "api-audiences", o.Audiences, "whom a token is for that is for the API; default the issuers")
	f.VarPF(&saidFlag{&o.Anonymous}, "anonymous-auth", "", "take requests of who shows nothing, as system:anonymous").NoOptDefVal = "true"
	f.StringVar(&o.ConfigFile, "authentication-config", o.ConfigFile, "file of an AuthenticationConfiguration: whose OpenID providers are believed, and for what paths nothing need be shown; it is read again when it changes")
	f.StringVar(&o.TokenFile, "token-auth-file", o.TokenFile, "file of tokens that are believed: lines of token,user,uid,\"group,group\"")
	addFrontProxyFlags(f, &o.FrontProxy)
	addOIDCFlags(f, o)

	w := &o.Webhook
	f.StringVar(&w.ConfigFile, "authentication-token-webhook-config-file", w.ConfigFile, "kubeconfig of a server that is asked about tokens that are of no other kind")
	f.StringVar(&w.Version, "authentication-token-webhook-version", w.Version, "version of the TokenReviews that it gets: v1 or v1beta1")
	f.DurationVar(&w.CacheTTL, "authentication-token-webhook-cache-ttl", w.CacheTTL, "how long its answers are remembered; 0: not at all")
}

func addFrontProxyFlags(f *pflag.FlagSet, o *cluster.FrontProxy) {
	f.StringVar(&o.CA, "requestheader-client-ca-file", o.CA, "certificates of the authority of proxies that are believed when they say for whom a request is")
	f.StringSliceVar(&o.Names, "requestheader-allowed-names", o.Names, "common names of their certificates; default any")
	f.StringSliceVar(&o.Headers.User, "requestheader-username-headers", o.Headers.User, "headers by which they say who; default X-Remote-User")
	f.StringSliceVar(&o.Headers.UID, "requestheader-uid-headers", o.Headers.UID, "headers of the UID; default X-Remote-Uid")
	f.StringSliceVar(&o.Headers.Group, "requestheader-group-headers", o.Headers.Group, "headers of the groups; default X-Remote-Group")
	f.StringSliceVar(&o.Headers.Extra, "requestheader-extra-headers-prefix", o.Headers.Extra, "how headers of further attributes begin; default X-Remote-Extra-")
}

func addOIDCFlags(f *pflag.FlagSet, i *cluster.Identity) {
	o := &i.OIDC
	f.StringVar(&o.IssuerURL, "oidc-issuer-url", o.IssuerURL, "URL of an OpenID provider whose tokens are believed; for several, or rules for them, see --authentication-config")
	f.StringVar(&o.ClientID, "oidc-client-id", o.ClientID, "whom its tokens must be for")
	f.StringVar(&o.UsernameClaim, "oidc-username-claim", o.UsernameClaim, "claim of its tokens that is the user's name")
	f.StringVar(&o.UsernamePrefix, "oidc-username-prefix", o.UsernamePrefix, "what goes before that name; -: nothing; default the URL and #, of the claim email nothing")
	f.StringVar(&o.GroupsClaim, "oidc-groups-claim", o.GroupsClaim, "claim of its tokens that is the user's groups, or the one group")
	f.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", o.GroupsPrefix, "what goes before the names of groups")
	f.StringVar(&o.CAFile, "oidc-ca-file", o.CAFile, "certificates of the provider's authority; default those that the machine trusts")
	f.Var((*claimsFlag)(&o.RequiredClaims), "oidc-required-claim", "claim that its tokens must have, with that value: claim=value; may be given again")
	f.StringSliceVar(&o.SigningAlgs, "oidc-signing-algs", o.SigningAlgs, "algorithms that its tokens may be signed by")
}

// saidFlag is a switch that is on unless it is said, and that knows whether it was.
type saidFlag struct{ to **bool }

func (s *saidFlag) Type() string { return "bool" }

func (s *saidFlag) String() string { return strconv.FormatBool(s.to == nil || *s.to == nil || **s.to) }

func (s *saidFlag) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err == nil {
		*s.to = &on
	}
	return err
}

// claimsFlag is claims with their values, one at a time.
type claimsFlag map[string]string

func (c *claimsFlag) Type() string { return "claim=value" }

func (c *claimsFlag) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(*c)) {
		all = append(all, name+"="+(*c)[name])
	}
	return strings.Join(all, ",")
}

func (c *claimsFlag) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if name = strings.TrimSpace(name); !ok || name == "" {
		return fmt.Errorf("%q: want claim=value", text)
	}
	if *c == nil {
		*c = map[string]string{}
	}
	(*c)[name] = strings.TrimSpace(value)
	return nil
}
