package guard

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/auth"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/delegated"
	"github.com/kemudi/kemudi/internal/client"
)

// Options of a guard. NodeName, Transport and ClientCA are required.
type Options struct {
	// NodeName is the node whose agent is guarded: rights are asked for by it.
	NodeName string
	// Transport asks the API server about tokens and rights, as the node's agent.
	Transport client.Transport
	// ClientCA signs the certificates of clients. It may be another one each time.
	ClientCA func() *x509.CertPool
	Logger   *slog.Logger // default: nothing is logged
}

// Guard is a handler that lets only those through who may.
type Guard struct {
	o    Options
	who  authenticator.Request
	may  *delegated.Rights
	next http.Handler
}

var _ http.Handler = (*Guard)(nil)

// New returns a guard before next.
func New(o Options, next http.Handler) (*Guard, error) {
	if o.NodeName == "" || o.Transport == nil || o.ClientCA == nil {
		return nil, errors.New("guard options: node name, transport and client CA must be given")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	tokens := []authenticator.Token{delegated.NewTokens(o.Transport)}
	return &Guard{
		o: o, next: next, may: delegated.NewRights(o.Transport),
		who: authn.NewRenewed(func() any { return o.ClientCA() }, func() authn.Options {
			return authn.Options{ClientCA: o.ClientCA(), Tokens: tokens, NoAnonymous: true}
		}),
	}, nil
}

// ServeHTTP lets the request through, or answers 401 or 403 as upstream's agent does.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, ok, err := g.who.AuthenticateRequest(r)
	if err != nil || !ok {
		if err != nil {
			g.o.Logger.DebugContext(r.Context(), "authentication failed", "err", err)
		}
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	verb, subs := auth.Verb(r.Method), subresources(r.URL.Path)
	allowed, err := g.allowed(r.Context(), who.User, delegated.Access{Verb: verb, Node: g.o.NodeName}, subs)
	switch {
	case allowed:
		r.Header.Del("Authorization")
		g.next.ServeHTTP(w, r)
	case err != nil:
		g.o.Logger.WarnContext(r.Context(), "authorization failed", "user", who.User.GetName(), "err", err)
		http.Error(w, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", who.User.GetName(), verb, subs), http.StatusInternalServerError)
	default:
		http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", who.User.GetName(), verb, subs), http.StatusForbidden)
	}
}

// allowed reports whether one of the subresources may be used.
func (g *Guard) allowed(ctx context.Context, u user.Info, a delegated.Access, subs []string) (bool, error) {
	var errs []error
	for _, a.Sub = range subs {
		ok, err := g.may.May(ctx, u, a)
		if ok {
			return true, nil
		}
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}

// own are the paths that a subresource of their own opens. Those that also had
// one when there was but "proxy" can be opened by that as well.
var own = []struct {
	path, sub string
	proxy     bool
}{
	{"/pods", "pods", true},
	{"/runningpods", "pods", true},
	{"/allocatedPods", "pods", true},
	{"/healthz", "healthz", true},
	{"/configz", "configz", true},
	{"/stats", "stats", false},
	{"/metrics", "metrics", false},
	{"/logs", "log", false},
	{"/statusz", "statusz", false},
	{"/flagz", "configz", false},
	{"/checkpoint", "checkpoint", false},
}

// subresources are those of nodes of which a right to one opens the path.
func subresources(path string) []string {
	for _, o := range own {
		if rest, ok := strings.CutPrefix(path, o.path); ok && (rest == "" || rest[0] == '/') {
			if o.proxy {
				return []string{o.sub, "proxy"}
			}
			return []string{o.sub}
		}
	}
	return []string{"proxy"}
}
