package secureport

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/delegated"
	"github.com/kemudi/kemudi/internal/client"
)

// reviews is an API server that knows one token, whose user may get /metrics.
type reviews struct{ client.Transport }

func (reviews) Do(_ context.Context, r *client.Request) (runtime.Object, error) {
	switch q := r.Object.(type) {
	case *authenticationv1.TokenReview:
		q.Status.Authenticated = q.Spec.Token == "good"
		q.Status.User = authenticationv1.UserInfo{Username: "jane"}
	case *authorizationv1.SubjectAccessReview:
		at := q.Spec.NonResourceAttributes
		q.Status.Allowed = q.Spec.User == "jane" && at.Verb == "get" && at.Path == "/metrics"
	}
	return r.Object, nil
}

func TestGateLetsThroughOnlyWhoMay(t *testing.T) {
	g := &gate{
		who: authn.New(authn.Options{ClientCA: x509.NewCertPool(), Tokens: []authenticator.Token{delegated.NewTokens(reviews{})}}),
		may: delegated.NewRights(reviews{}), allow: append(Defaults(1).AlwaysAllow, "/open/*"), log: slog.New(slog.DiscardHandler),
		next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				t.Error("the token is handed on")
			}
		}),
	}
	for _, c := range []struct {
		method, path, token string
		code                int
		says                string
	}{
		{"GET", "/healthz", "", 200, ""},
		{"GET", "/livez", "", 200, ""},
		{"GET", "/open/door", "", 200, ""},
		{"GET", "/healthz/etcd", "", 403, ""},
		{"GET", "/metrics", "", 403, `forbidden: User \"system:anonymous\" cannot get path \"/metrics\"`},
		{"GET", "/metrics", "good", 200, ""},
		{"POST", "/metrics", "good", 403, `forbidden: User \"jane\" cannot post path \"/metrics\"`},
		{"GET", "/metrics", "bad", 401, `"reason":"Unauthorized"`},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s as %q: got %d %s, want %d %s", c.method, c.path, c.token, w.Code, w.Body, c.code, c.says)
		}
	}
}
