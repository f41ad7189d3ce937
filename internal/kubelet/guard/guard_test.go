package guard_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/guard"
)

// answers is an API server that answers reviews and counts them.
type answers struct {
	client.Transport
	tokens, rights int
	away           error
	allowed        string // the subresource that may be used
}

func (a *answers) Do(_ context.Context, r *client.Request) (runtime.Object, error) {
	if a.away != nil {
		return nil, a.away
	}
	switch q := r.Object.(type) {
	case *authenticationv1.TokenReview:
		a.tokens++
		q.Status.Authenticated = q.Spec.Token == "good"
		q.Status.User = authenticationv1.UserInfo{Username: "jane", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
	case *authorizationv1.SubjectAccessReview:
		a.rights++
		at := q.Spec.ResourceAttributes
		q.Status.Allowed = q.Spec.User == "jane" && len(q.Spec.Extra["k"]) == 1 && at.Subresource == a.allowed && at.Name == "n1" && at.Resource == "nodes" && at.Version == "v1"
	}
	return r.Object, nil
}

func ask(t *testing.T, g http.Handler, method, path, token string) int {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w.Code
}

// guarded is a guard before what answers 200 to everything.
func guarded(t *testing.T, a *answers) http.Handler {
	t.Helper()
	g, err := guard.New(guard.Options{NodeName: "n1", Transport: a, ClientCA: x509.NewCertPool}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token is handed on")
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestAnswersAreRememberedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{allowed: "metrics"}
		g := guarded(t, a)
		for _, step := range []struct {
			after          time.Duration
			token, path    string
			want           int
			tokens, rights int // asked for so far
		}{
			{0, "good", "/metrics", 200, 1, 1},
			{time.Minute, "good", "/metrics/cadvisor", 200, 1, 1},
			{61 * time.Second, "good", "/metrics", 200, 2, 1},
			{0, "bad", "/metrics", 401, 3, 1},
			{9 * time.Second, "bad", "/metrics", 401, 3, 1},
			{2 * time.Second, "bad", "/metrics", 401, 4, 1},
			{0, "good", "/stats/summary", 403, 4, 2},
			{29 * time.Second, "good", "/stats/summary", 403, 4, 2},
			{2 * time.Second, "good", "/stats/summary", 403, 4, 3},
			{0, "good", "/healthz", 403, 4, 5}, // healthz, then proxy
			{4 * time.Minute, "good", "/metrics", 200, 5, 6},
		} {
			time.Sleep(step.after)
			if got := ask(t, g, "GET", step.path, step.token); got != step.want || a.tokens != step.tokens || a.rights != step.rights {
				t.Errorf("%s as %s: got %d after %d and %d reviews, want %d after %d and %d", step.path, step.token, got, a.tokens, a.rights, step.want, step.tokens, step.rights)
			}
		}
	})
}

func TestNobodyGetsInWhileTheAPIServerIsAway(t *testing.T) {
	a := &answers{allowed: "proxy"}
	g := guarded(t, a)
	if got := ask(t, g, "POST", "/exec/default/a/c", "good"); got != 200 {
		t.Errorf("got %d", got)
	}
	a.away = errors.New("connection refused")
	for _, c := range []struct {
		method, path, token string
		want                int
	}{
		{"POST", "/exec/default/a/c", "good", 200}, // remembered
		{"GET", "/exec/default/a/c", "good", 500},  // another right
		{"GET", "/healthz", "other", 401},
		{"GET", "/healthz", "", 401},
	} {
		if got := ask(t, g, c.method, c.path, c.token); got != c.want {
			t.Errorf("%s %s with %q: got %d, want %d", c.method, c.path, c.token, got, c.want)
		}
	}
}

func TestEveryMethodNeedsItsVerb(t *testing.T) {
	a := &answers{allowed: "proxy"}
	g := guarded(t, a)
	for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 200, "PUT": 200, "PATCH": 200, "DELETE": 200, "BREW": 500} {
		if got := ask(t, g, method, "/run/default/a/c", "good"); got != want {
			t.Errorf("%s: got %d, want %d", method, got, want)
		}
	}
	if _, err := guard.New(guard.Options{}, nil); err == nil {
		t.Error("a guard that can ask nobody")
	}
}
