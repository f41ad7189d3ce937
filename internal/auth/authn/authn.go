package authn

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Options say who is believed. The zero value knows nobody: all are anonymous.
type Options struct {
	// ClientCA signs the certificates of clients. Nil: none are looked at.
	ClientCA *x509.CertPool
	// Nodes says which of the certificates of nodes are good still. Nil: all that are
	// signed and have not ended.
	Nodes *NodeAccess
	// Tokens are asked in turn about bearer tokens.
	Tokens []authenticator.Token
	// FrontProxy believes a proxy that says for whom a request is. Nil: nobody.
	FrontProxy *FrontProxy
	// NoAnonymous refuses requests that show nothing.
	NoAnonymous bool
	// Anonymous says which paths may be asked for by who shows nothing. Nil: all.
	Anonymous func(path string) bool
	// Audiences are those of the API server: a bearer token is for one of them, unless a context names
	// others. Nil: those who are asked about tokens know it themselves.
	Audiences []string
	// Expiry is told how long the certificates that clients show will be good. Nil: nobody is told.
	Expiry prometheus.Observer
}

// Authenticator is the chain. It may be used concurrently.
type Authenticator struct {
	o     Options
	certs certificates
}

var (
	_ authenticator.Request = (*Authenticator)(nil)
	_ authenticator.Token   = (*Authenticator)(nil)
)

// New returns the chain of o.
func New(o Options) *Authenticator {
	if o.FrontProxy != nil {
		proxy := *o.FrontProxy
		proxy.Headers = proxy.Headers.Canonical()
		o.FrontProxy = &proxy
	}
	return &Authenticator{o: o, certs: certificates{roots: o.ClientCA, nodes: o.Nodes, expiry: o.Expiry}}
}

// errToken says that a bearer token was shown and nobody knows it.
var errToken = errors.New("invalid bearer token")

// AuthenticateRequest says who makes the request, by the first good credential that
// it shows. It fails if those that it shows are all bad. Credentials that it has used
// are taken out of the request's headers.
func (a *Authenticator) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	var errs []error
	for _, ask := range []func(*http.Request) (*authenticator.Response, bool, error){a.fromProxy, a.fromCertificate, a.fromToken} {
		res, ok, err := ask(r)
		if ok {
			return res, true, nil
		}
		if err != nil {
			errs = append(errs, err) // another of the credentials may be good
		}
	}
	if len(errs) > 0 {
		return nil, false, errors.Join(errs...)
	}
	if a.o.NoAnonymous || a.o.Anonymous != nil && !a.o.Anonymous(r.URL.Path) {
		return nil, false, nil
	}
	auds, _ := authenticator.AudiencesFrom(r.Context())
	return &authenticator.Response{
		Audiences: auds,
		User:      &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}},
	}, true, nil
}

func (a *Authenticator) fromProxy(r *http.Request) (*authenticator.Response, bool, error) {
	if a.o.FrontProxy == nil {
		return nil, false, nil
	}
	res, ok, err := a.o.FrontProxy.authenticate(r)
	return authenticated(res), ok, err
}

func (a *Authenticator) fromCertificate(r *http.Request) (*authenticator.Response, bool, error) {
	if a.o.ClientCA == nil {
		return nil, false, nil
	}
	res, ok, err := a.certs.authenticate(r)
	return authenticated(res), ok, err
}

func (a *Authenticator) fromToken(r *http.Request) (*authenticator.Response, bool, error) {
	token := bearer(r)
	if token == "" {
		return nil, false, nil
	}
	res, ok, err := a.AuthenticateToken(r.Context(), token)
	if !ok || err != nil {
		return nil, false, errors.Join(errToken, err)
	}
	r.Header.Del("Authorization")
	return res, true, nil
}

// AuthenticateToken says whose bearer token it is.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if _, asked := authenticator.AudiencesFrom(ctx); !asked && len(a.o.Audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, a.o.Audiences)
	}
	var errs []error
	for _, t := range a.o.Tokens {
		res, ok, err := t.AuthenticateToken(ctx, token)
		if ok {
			return authenticated(res), true, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return nil, false, utilerrors.NewAggregate(errs)
}

// authenticated adds the group of all who have shown who they are.
func authenticated(res *authenticator.Response) *authenticator.Response {
	if res == nil {
		return nil
	}
	u := res.User
	if u.GetName() == user.Anonymous || slices.Contains(u.GetGroups(), user.AllAuthenticated) || slices.Contains(u.GetGroups(), user.AllUnauthenticated) {
		return res
	}
	groups := append(slices.Clone(u.GetGroups()), user.AllAuthenticated)
	return &authenticator.Response{
		Audiences: res.Audiences,
		User:      &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: groups, Extra: u.GetExtra()},
	}
}

// bearer is the request's bearer token, from the header or, as browsers cannot
// set headers of WebSockets, from a subprotocol; empty if there is none.
func bearer(r *http.Request) string {
	kind, rest, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if strings.EqualFold(kind, "bearer") {
		token, _, _ := strings.Cut(rest, " ") // what follows a token is nobody's
		return token
	}
	return protocolToken(r)
}

// protocolPrefix begins the WebSocket subprotocol that carries a token.
const protocolPrefix = "base64url.bearer.authorization.k8s.io."

// protocolToken takes the token out of the list of subprotocols, which must
// name at least one other.
func protocolToken(r *http.Request) string {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return ""
	}
	header := textproto.CanonicalMIMEHeaderKey("Sec-WebSocket-Protocol")
	token := ""
	var others []string
	for _, line := range r.Header[header] {
		for protocol := range strings.SplitSeq(line, ",") {
			protocol = strings.TrimSpace(protocol)
			encoded, ok := strings.CutPrefix(protocol, protocolPrefix)
			if !ok {
				others = append(others, protocol)
				continue
			}
			decoded, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil || token != "" {
				return ""
			}
			token = string(decoded)
		}
	}
	if token == "" || len(others) == 0 {
		return ""
	}
	r.Header.Set(header, strings.Join(others, ","))
	return token
}
