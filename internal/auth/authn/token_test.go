package authn

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/warning"
)

// world is the objects that tokens are bound to.
type world struct {
	account *corev1.ServiceAccount
	pod     *corev1.Pod
	secret  *corev1.Secret
	node    *corev1.Node
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)}
}

func newWorld() *world {
	return &world{
		account: &corev1.ServiceAccount{ObjectMeta: meta("team", "builder")},
		pod:     &corev1.Pod{ObjectMeta: meta("team", "job-1")},
		secret:  &corev1.Secret{ObjectMeta: meta("team", "builder-token"), Data: map[string][]byte{}},
		node:    &corev1.Node{ObjectMeta: meta("", "n1")},
	}
}

func (w *world) objects() Objects {
	return Objects{
		ServiceAccount: func(_ context.Context, _, name string) *corev1.ServiceAccount { return named(w.account, name) },
		Secret:         func(_ context.Context, _, name string) *corev1.Secret { return named(w.secret, name) },
		Pod:            func(_ context.Context, _, name string) *corev1.Pod { return named(w.pod, name) },
		Node:           func(_ context.Context, name string) *corev1.Node { return named(w.node, name) },
	}
}

func named[T interface {
	comparable
	GetName() string
}](obj T, name string) T {
	var none T
	if obj == none || obj.GetName() != name {
		return none
	}
	return obj
}

func newIssuer(t testing.TB, o IssuerOptions) *Issuer {
	t.Helper()
	if o.Key == nil {
		o.Key = newPKI(t).ServiceAccounts
	}
	i, err := NewIssuer(o)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func issueToken(t testing.TB, i *Issuer, spec authenticationv1.TokenRequestSpec, b Bound) *authenticationv1.TokenRequest {
	t.Helper()
	answer, err := i.Issue(t.Context(), &authenticationv1.TokenRequest{Spec: spec}, b)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// say tells whose token it is, or why nobody's.
func say(ctx context.Context, a authenticator.Token, token string) string {
	res, ok, err := a.AuthenticateToken(ctx, token)
	if !ok {
		return fmt.Sprintf("refused: %v", err)
	}
	return fmt.Sprintf("%s %s [%s] for %v", res.User.GetName(), res.User.GetUID(), strings.Join(res.User.GetGroups(), " "), res.Audiences)
}

const builder = "system:serviceaccount:team:builder uid-of-builder [system:serviceaccounts system:serviceaccounts:team system:authenticated] for [https://kubernetes.default.svc.cluster.local]"

func TestTokenIsGoodWhileItsObjectsAre(t *testing.T) {
	gone := func(ago time.Duration) *metav1.Time { return &metav1.Time{Time: time.Now().Add(-ago)} }
	all := func(w *world) Bound {
		return Bound{ServiceAccount: w.account, Pod: w.pod, Secret: w.secret, Node: w.node}
	}
	for _, c := range []struct {
		name   string
		bound  func(w *world) Bound
		change func(w *world)
		want   string
	}{
		{"nothing happens", all, func(*world) {}, builder},
		{"account deleted", all, func(w *world) { w.account = nil }, `refused: serviceaccounts "builder" not found`},
		{"account made again", all, func(w *world) { w.account.UID = "other" }, "refused: service account UID (other) does not match claim (uid-of-builder)"},
		{"account is going", all, func(w *world) { w.account.DeletionTimestamp = gone(time.Second) }, builder},
		{"account has been going for long", all, func(w *world) { w.account.DeletionTimestamp = gone(2 * time.Minute) }, `refused: service account team/builder has been deleted`},
		{"pod deleted", all, func(w *world) { w.pod = nil }, "refused: service account token has been invalidated"},
		{"pod made again", all, func(w *world) { w.pod.UID = "other" }, "refused: pod UID (other) does not match service account pod ref claim (uid-of-job-1)"},
		{"secret deleted", all, func(w *world) { w.secret = nil }, "refused: service account token has been invalidated"},
		{"node of the pod deleted", all, func(w *world) { w.node = nil }, builder},
		{"node of a token for the node deleted", func(w *world) Bound { return Bound{ServiceAccount: w.account, Node: w.node} },
			func(w *world) { w.node = nil }, "refused: service account token has been invalidated"},
		{"token of the account alone", func(w *world) Bound { return Bound{ServiceAccount: w.account} },
			func(w *world) { w.pod, w.secret, w.node = nil, nil, nil }, builder},
	} {
		w := newWorld()
		i := newIssuer(t, IssuerOptions{})
		a := NewServiceAccountTokens(i, w.objects())
		token := issueToken(t, i, authenticationv1.TokenRequestSpec{}, c.bound(w)).Status.Token
		if got := say(t.Context(), a, token); got != builder {
			t.Errorf("%s, before: got %s", c.name, got)
		}
		c.change(w)
		if got := say(t.Context(), a, token); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestTokenIsNotRefusedBecauseTheCacheIsBehind(t *testing.T) {
	w, i := newWorld(), newIssuer(t, IssuerOptions{})
	token := issueToken(t, i, authenticationv1.TokenRequestSpec{}, Bound{ServiceAccount: w.account}).Status.Token
	o, late := w.objects(), w.account
	w.account = nil
	o.Fresh = func(context.Context) error {
		w.account = late
		return nil
	}
	if got := say(t.Context(), NewServiceAccountTokens(i, o), token); got != builder {
		t.Errorf("got %s", got)
	}
}

func TestTokenTellsWhereItIsFrom(t *testing.T) {
	w := newWorld()
	i := newIssuer(t, IssuerOptions{})
	token := issueToken(t, i, authenticationv1.TokenRequestSpec{}, Bound{ServiceAccount: w.account, Pod: w.pod, Node: w.node}).Status.Token
	res, ok, err := NewServiceAccountTokens(i, w.objects()).AuthenticateToken(t.Context(), token)
	if !ok || err != nil {
		t.Fatal(err)
	}
	extra := res.User.GetExtra()
	for key, want := range map[string]string{
		"authentication.kubernetes.io/pod-name": "job-1", "authentication.kubernetes.io/pod-uid": "uid-of-job-1",
		"authentication.kubernetes.io/node-name": "n1", "authentication.kubernetes.io/node-uid": "uid-of-n1",
	} {
		if !slices.Equal(extra[key], []string{want}) {
			t.Errorf("extra %s: got %v, want %s", key, extra[key], want)
		}
	}
	if id := extra["authentication.kubernetes.io/credential-id"]; len(id) != 1 || !strings.HasPrefix(id[0], "JTI=") {
		t.Errorf("credential: got %v", id)
	}
}

func TestTokenEndsInTime(t *testing.T) {
	key := newPKI(t).ServiceAccounts
	seconds := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		name          string
		o             IssuerOptions
		asked         *int64
		pod           bool
		answered, end time.Duration
	}{
		{name: "default", answered: time.Hour, end: time.Hour},
		{name: "asked", asked: seconds(600), answered: 10 * time.Minute, end: 10 * time.Minute},
		{name: "bounded", o: IssuerOptions{MaxLife: time.Hour}, asked: seconds(86400), answered: time.Hour, end: time.Hour},
		{name: "node agent's", asked: seconds(3607), pod: true, answered: 3607 * time.Second, end: 365 * 24 * time.Hour},
		{name: "not for a pod", asked: seconds(3607), answered: 3607 * time.Second, end: 3607 * time.Second},
		{name: "extension turned off", o: IssuerOptions{NoExtension: true}, asked: seconds(3607), pod: true, answered: 3607 * time.Second, end: 3607 * time.Second},
	} {
		c.o.Key = key
		synctest.Test(t, func(t *testing.T) {
			w, i := newWorld(), newIssuer(t, c.o)
			a := NewServiceAccountTokens(i, w.objects())
			b := Bound{ServiceAccount: w.account}
			if c.pod {
				b.Pod = w.pod
			}
			start := time.Now()
			answer := issueToken(t, i, authenticationv1.TokenRequestSpec{ExpirationSeconds: c.asked}, b)
			if got := answer.Status.ExpirationTimestamp.Sub(start); got != c.answered || *answer.Spec.ExpirationSeconds != int64(c.answered/time.Second) {
				t.Errorf("%s: told %s and %d s, want %s", c.name, got, *answer.Spec.ExpirationSeconds, c.answered)
			}
			time.Sleep(c.end - time.Second)
			if got := say(t.Context(), a, answer.Status.Token); got != builder {
				t.Errorf("%s, one second before its end: %s", c.name, got)
			}
			time.Sleep(2 * time.Second)
			if got, want := say(t.Context(), a, answer.Status.Token), "refused: service account token has expired"; got != want {
				t.Errorf("%s, one second after its end: got %s, want %s", c.name, got, want)
			}
		})
	}
}

func TestTokenIsForItsAudiences(t *testing.T) {
	w, i := newWorld(), newIssuer(t, IssuerOptions{})
	a := NewServiceAccountTokens(i, w.objects())
	vault := issueToken(t, i, authenticationv1.TokenRequestSpec{Audiences: []string{"vault", "other"}}, Bound{ServiceAccount: w.account}).Status.Token
	if got := say(t.Context(), a, vault); !strings.HasPrefix(got, "refused: token audiences") {
		t.Errorf("token for another, shown to the API server: got %s", got)
	}
	ctx := authenticator.WithAudiences(t.Context(), authenticator.Audiences{"vault", "x"})
	if got := say(ctx, a, vault); !strings.HasSuffix(got, "for [vault]") {
		t.Errorf("asked for the vault's sake: got %s", got)
	}
	one := issueToken(t, i, authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}, Bound{ServiceAccount: w.account}).Status.Token
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(one, ".")[1])
	if err != nil || !strings.Contains(string(payload), `"aud":["vault"]`) {
		t.Errorf("a single audience: got %s, %v, want a list of one", payload, err)
	}
}

func TestTokensOfOthersAreRefusedOrLeftAlone(t *testing.T) {
	w := newWorld()
	i, stranger := newIssuer(t, IssuerOptions{}), newIssuer(t, IssuerOptions{})
	elsewhere := newIssuer(t, IssuerOptions{URL: "https://elsewhere"})
	a := NewServiceAccountTokens(i, w.objects())
	b := Bound{ServiceAccount: w.account}
	spec := authenticationv1.TokenRequestSpec{}
	good := issueToken(t, i, spec, b).Status.Token
	parts := strings.Split(good, ".")
	for name, c := range map[string]struct{ token, want string }{
		"signed by a stranger": {issueToken(t, stranger, spec, b).Status.Token, "refused: the token's signature is not this cluster's"},
		"of another issuer":    {issueToken(t, elsewhere, spec, b).Status.Token, "refused: <nil>"},
		"no token":             {"abc", "refused: <nil>"},
		"two dots":             {"a.b.c", "refused: <nil>"},
		"changed":              {parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2])), "refused: the token's signature is not this cluster's"},
		"unsigned":             {"eyJhbGciOiJub25lIn0." + parts[1] + ".", "refused: <nil>"},
	} {
		if got := say(t.Context(), a, c.token); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	if got := say(t.Context(), a, good); got != builder {
		t.Errorf("good token: got %s", got)
	}
}

func TestKeysCanBeChanged(t *testing.T) {
	w := newWorld()
	old, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	before := newIssuer(t, IssuerOptions{Key: old})
	after := newIssuer(t, IssuerOptions{OldKeys: []crypto.PublicKey{old.Public()}})
	token := issueToken(t, before, authenticationv1.TokenRequestSpec{}, Bound{ServiceAccount: w.account}).Status.Token
	if got := say(t.Context(), NewServiceAccountTokens(after, w.objects()), token); got != builder {
		t.Errorf("token of the old key: got %s", got)
	}
}

func TestOthersCanCheckTokensByThePublishedDocuments(t *testing.T) {
	w, i := newWorld(), newIssuer(t, IssuerOptions{})
	token := issueToken(t, i, authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}, Bound{ServiceAccount: w.account, Pod: w.pod, Node: w.node}).Status.Token
	data, err := i.Discovery()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id_token_signing_alg_values_supported":["ES256"],"issuer":"https://kubernetes.default.svc.cluster.local",` +
		`"jwks_uri":"https://kubernetes.default.svc.cluster.local/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"]}`
	if string(data) != want {
		t.Errorf("configuration: got %s, want %s", data, want)
	}
	if data, err = i.KeySet(); err != nil {
		t.Fatal(err)
	}
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal(data, &keys); err != nil || len(keys.Keys) != 1 || !keys.Keys[0].IsPublic() {
		t.Fatalf("key set %s: %v", data, err)
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	found := keys.Key(parsed.Headers[0].KeyID)
	if len(found) != 1 {
		t.Fatalf("key %s is not in the set %s", parsed.Headers[0].KeyID, data)
	}
	var said map[string]any
	if err := parsed.Claims(found[0].Key, &said); err != nil {
		t.Fatal(err)
	}
	own, err := json.Marshal(said["kubernetes.io"])
	wantOwn := `{"namespace":"team","node":{"name":"n1","uid":"uid-of-n1"},"pod":{"name":"job-1","uid":"uid-of-job-1"},"serviceaccount":{"name":"builder","uid":"uid-of-builder"}}`
	if err != nil || string(own) != wantOwn || said["sub"] != "system:serviceaccount:team:builder" {
		t.Errorf("claims: got %s of %v, %v; want %s", own, said["sub"], err, wantOwn)
	}
}

func TestTokenInASecretIsGoodWhileTheSecretHoldsIt(t *testing.T) {
	w, i := newWorld(), newIssuer(t, IssuerOptions{})
	a := NewServiceAccountTokens(i, w.objects())
	token, err := i.IssueLegacy(w.account, w.secret)
	if err != nil {
		t.Fatal(err)
	}
	w.secret.Data["token"] = []byte(token)
	if got := say(t.Context(), a, token); got != builder {
		t.Errorf("got %s", got)
	}
	w.secret.Data["token"] = []byte("another")
	if got, want := say(t.Context(), a, token), "refused: service account token has been invalidated"; got != want {
		t.Errorf("secret holds another: got %s, want %s", got, want)
	}
	w.secret = nil
	if got, want := say(t.Context(), a, token), "refused: service account token has been invalidated"; got != want {
		t.Errorf("secret is gone: got %s, want %s", got, want)
	}
}

// told notes the warnings of a request.
type told []string

func (w *told) AddWarning(_, text string) { *w = append(*w, text) }

// TestUseOfATokenInASecretIsNotedCountedAndWarnedOf, if a cluster of old has made it; one
// that is marked invalid is refused, and the attempt noted all the same.
func TestUseOfATokenInASecretIsNotedCountedAndWarnedOf(t *testing.T) {
	const warned = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens."
	const refused = "refused: the token in secret team/builder-token for service account team/builder has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the 'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token"
	for _, c := range []struct {
		name    string
		change  func(w *world)
		want    string
		warning string
		counted string
	}{
		{"made by a person", func(*world) {}, builder, "", "legacy_manual_token_uses legacy_tokens"},
		{"another secret is the account's", func(w *world) { w.account.Secrets = []corev1.ObjectReference{{Name: "other"}} }, builder, "", "legacy_manual_token_uses legacy_tokens"},
		{"made by a cluster", func(w *world) { w.account.Secrets = []corev1.ObjectReference{{Name: "builder-token"}} }, builder, warned, "legacy_auto_token_uses legacy_tokens"},
		{"marked", func(w *world) {
			w.account.Secrets = []corev1.ObjectReference{{Name: "builder-token"}}
			w.secret.Labels = map[string]string{"kubernetes.io/legacy-token-invalid-since": "2000-01-01"}
		}, refused, "", "invalid_legacy_auto_token_uses legacy_tokens"},
		{"marked with no date", func(w *world) {
			w.secret.Labels = map[string]string{"kubernetes.io/legacy-token-invalid-since": "lately"}
		}, refused, "", "invalid_legacy_auto_token_uses legacy_tokens"},
	} {
		w, i, reg := newWorld(), newIssuer(t, IssuerOptions{}), prometheus.NewRegistry()
		token, err := i.IssueLegacy(w.account, w.secret)
		if err != nil {
			t.Fatal(err)
		}
		w.secret.Data["token"] = []byte(token)
		c.change(w)
		var used []string
		o := w.objects()
		o.Used = func(s *corev1.Secret) { used = append(used, s.Name) }
		o.Fresh = func(context.Context) error { used = nil; return nil } // who is refused is asked about again
		o.Registry = reg
		var warnings told
		if got := say(warning.WithWarningRecorder(t.Context(), &warnings), NewServiceAccountTokens(i, o), token); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		if got := strings.Join(warnings, "; "); got != c.warning {
			t.Errorf("%s: got warnings %q, want %q", c.name, got, c.warning)
		}
		if got := strings.Join(used, " "); got != "builder-token" {
			t.Errorf("%s: noted the use of %q, want that of the secret, once", c.name, got)
		}
		if got := counted(t, reg); got != c.counted {
			t.Errorf("%s: counted %s, want %s", c.name, got, c.counted)
		}
	}
}

// counted are the counters that stand at one; the others must be zero.
func counted(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		switch n := f.GetMetric()[0].GetCounter().GetValue(); n {
		case 0:
		case 1:
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(f.GetName(), "serviceaccount_"), "_total"))
		default:
			t.Errorf("%s: got %v, want 1", f.GetName(), n)
		}
	}
	return strings.Join(names, " ")
}

// TestUseOfAPodsTokenIsCountedAsStaleWhenItShouldHaveBeenReadAnew after the hour that its node
// has asked for; it is good for a year.
func TestUseOfAPodsTokenIsCountedAsStaleWhenItShouldHaveBeenReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, i := newWorld(), newIssuer(t, IssuerOptions{})
		token := issueToken(t, i, authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3607))}, Bound{ServiceAccount: w.account, Pod: w.pod}).Status.Token
		for _, want := range []string{"valid_tokens", "stale_tokens"} {
			o := w.objects()
			o.Registry = prometheus.NewRegistry()
			if got := say(t.Context(), NewServiceAccountTokens(i, o), token); got != builder {
				t.Errorf("got %s", got)
			}
			if got := counted(t, o.Registry); got != want {
				t.Errorf("counted %s, want %s", got, want)
			}
			time.Sleep(2 * time.Hour)
		}
	})
}

func BenchmarkServiceAccountToken(b *testing.B) {
	w, i := newWorld(), newIssuer(b, IssuerOptions{})
	a := New(Options{Tokens: []authenticator.Token{NewServiceAccountTokens(i, w.objects())}})
	token := issueToken(b, i, authenticationv1.TokenRequestSpec{}, Bound{ServiceAccount: w.account, Pod: w.pod}).Status.Token
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := a.AuthenticateToken(b.Context(), token); !ok {
			b.Fatal(err)
		}
	}
}

func BenchmarkGrant(b *testing.B) {
	w, i := newWorld(), newIssuer(b, IssuerOptions{})
	for b.Loop() {
		issueToken(b, i, authenticationv1.TokenRequestSpec{}, Bound{ServiceAccount: w.account, Pod: w.pod})
	}
}

// FuzzServiceAccountToken changes a good token: whoever it is good for then, it is nobody else.
func FuzzServiceAccountToken(f *testing.F) {
	w := newWorld()
	i := newIssuer(f, IssuerOptions{})
	a := NewServiceAccountTokens(i, w.objects())
	good := issueToken(f, i, authenticationv1.TokenRequestSpec{}, Bound{ServiceAccount: w.account, Pod: w.pod}).Status.Token
	head, rest, _ := strings.Cut(good, ".")
	claims, signature, _ := strings.Cut(rest, ".")
	f.Add(head, claims, signature)
	f.Add("eyJhbGciOiJub25lIn0", claims, "")
	f.Add(head, claims, "")
	f.Fuzz(func(t *testing.T, head, claims, signature string) {
		for _, token := range []string{head + "." + claims + "." + signature, head + "." + rest, good + signature, claims} {
			if got := say(t.Context(), a, token); got != builder && !strings.HasPrefix(got, "refused: ") {
				t.Errorf("%q: got %s", token, got)
			}
		}
	})
}
