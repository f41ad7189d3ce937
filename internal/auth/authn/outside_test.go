package authn

import (
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"

	outside "github.com/kemudi/kemudi/internal/auth/signer"
	"github.com/kemudi/kemudi/test/signer"
)

// says is what a token says.
func says(t *testing.T, token string) (claims map[string]any) {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

func TestTokensSignedOutsideSayTheSameForNoLongerThanTheSignerAllows(t *testing.T) {
	t.Parallel()
	p := signer.New(t)
	p.Lie(signer.Lies{MaxLife: 7200})
	by, err := outside.Open(t.Context(), outside.Options{Endpoint: p.Socket, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	i, err := NewIssuer(IssuerOptions{Signer: by})
	if err != nil {
		t.Fatal(err)
	}
	w, own := newWorld(), newIssuer(t, IssuerOptions{})
	ask := func(i *Issuer, seconds int64) (map[string]any, *authenticationv1.TokenRequest) {
		answer := issueToken(t, i, authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}, Bound{ServiceAccount: w.account, Pod: w.pod, Node: w.node})
		return says(t, answer.Status.Token), answer
	}
	ofAgent, answer := ask(i, 3607)
	before, _ := ask(own, 3607)
	if got, want := slices.Sorted(maps.Keys(ofAgent)), slices.Sorted(maps.Keys(before)); !slices.Equal(got, want) {
		t.Errorf("claims: got %q, want %q", got, want)
	}
	inner, want := ofAgent["kubernetes.io"].(map[string]any), before["kubernetes.io"].(map[string]any)
	delete(want, "warnafter")
	warn := inner["warnafter"].(float64)
	delete(inner, "warnafter")
	got, _ := json.Marshal([]any{inner, ofAgent["aud"], ofAgent["iss"], ofAgent["sub"]})
	if same, _ := json.Marshal([]any{want, before["aud"], before["iss"], before["sub"]}); string(got) != string(same) {
		t.Errorf("got %s, want %s", got, same)
	}

	// That of an agent would be good for a year.
	began := ofAgent["iat"].(float64)
	if life := ofAgent["exp"].(float64) - began; life != 7200 || warn-began != 3607 || *answer.Spec.ExpirationSeconds != 3607 {
		t.Errorf("asked for 3607 s: good for %v s, warned of after %v s, told %d s; want 7200, 3607, 3607", life, warn-began, *answer.Spec.ExpirationSeconds)
	}
	long, answer := ask(i, 86400)
	if life := long["exp"].(float64) - long["iat"].(float64); life != 7200 || *answer.Spec.ExpirationSeconds != 7200 || i.MaxSeconds() != 7200 {
		t.Errorf("asked for a day: good for %v s, told %d s of at most %d; want 7200 s", life, *answer.Spec.ExpirationSeconds, i.MaxSeconds())
	}
	if left := i.FreshFor(); left > time.Hour || left < 59*time.Minute {
		t.Errorf("the keys are up to date for %s, want an hour, as the signer says", left)
	}
	// Nothing that does not end is signed where there is no key for it.
	if token, err := i.IssueLegacy(w.account, w.secret); err == nil {
		t.Errorf("a token for a secret without a key of its own: got %s", token)
	}
	kept, err := newIssuer(t, IssuerOptions{Signer: by}).IssueLegacy(w.account, w.secret)
	if err != nil || says(t, kept)["iss"] != legacyIssuer {
		t.Errorf("a token for a secret: got %s, %v", kept, err)
	}
}
