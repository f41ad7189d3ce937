package cluster

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kemudi/kemudi/test/signer"
	"github.com/kemudi/kemudi/test/wait"
)

// signed is a token of the account default of kube-system that lives as long as asked for.
func (b *joinBed) signed(k kubernetes.Interface, life int64) (*authenticationv1.TokenRequest, error) {
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
	defer cancel()
	ask := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &life}}
	return k.CoreV1().ServiceAccounts("kube-system").CreateToken(ctx, "default", ask, metav1.CreateOptions{})
}

// signedToken is one that is got when the account and the signer are there.
func (b *joinBed) signedToken(k kubernetes.Interface) (token string) {
	b.Helper()
	wait.Until(b, func() error {
		answer, err := b.signed(k, 3600)
		if err != nil {
			return err
		}
		token = answer.Status.Token
		return nil
	})
	return token
}

func TestTokensAreSignedByAnotherProgram(t *testing.T) {
	t.Parallel()
	p := signer.New(t)
	b := newJoinBed(t, func(o *Options) { o.Identity.Endpoint = p.Socket })
	b.g.Go("whose tokens are believed", b.s.known.Run())
	k := b.root()
	const account = "system:serviceaccount:kube-system:default system:serviceaccounts,system:serviceaccounts:kube-system,system:authenticated"

	first := b.signedToken(k)
	b.believed(first, account)
	keys := func() string {
		text, err := k.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(t.Context())
		b.must(err)
		var set jose.JSONWebKeySet
		b.must(json.Unmarshal(text, &set))
		var ids []string
		for _, key := range set.Keys {
			ids = append(ids, key.KeyID)
		}
		return strings.Join(ids, " ")
	}
	if got := keys(); got != "first" {
		t.Errorf("keys that others are told of: got %s, want first alone", got)
	}

	// Nobody gets a token that lives for longer than the signer allows.
	long, err := b.signed(k, 7*24*60*60)
	b.must(err)
	if got := *long.Spec.ExpirationSeconds; got != 24*60*60 {
		t.Errorf("asked for a week: got a token for %d s, want a day", got)
	}

	// Another key is believed from its first token on; the one before is for older tokens alone.
	p.Rotate("second")
	second := b.signedToken(k)
	b.believed(second, account)
	b.believed(first, account)
	if got := keys(); got != "second" {
		t.Errorf("keys that others are told of, after a rotation: got %s, want second alone", got)
	}

	// A signer that is away ends no token, and is found when it is back. New keys end those of old ones.
	p.Stop()
	b.believed(second, account)
	p.Forget()
	p.Rotate("third")
	p.Start()
	third := b.signedToken(k)
	b.believed(third, account)
	b.believed(second, account)
	b.believed(first, "Unauthorized")
	b.signerLies(k, p)
	b.keptInSecrets(k, account)
}

// signerLies holds what becomes of tokens that are signed as they should not be.
func (b *joinBed) signerLies(k kubernetes.Interface, p *signer.Signer) {
	b.Helper()
	for header, want := range map[string]string{
		`{"alg":"none","kid":"third","typ":"JWT"}`:             `bad signing algorithm "none"`,
		`{"alg":"ES256","kid":"second","typ":"JWT"}`:           "(kid: second) is excluded from OIDC discovery docs",
		`{"alg":"ES256","kid":"third","typ":"JWT","jku":"//"}`: `unknown field "jku"`,
		`{"alg":"ES256","typ":"JWT"}`:                          "key id missing",
	} {
		p.Lie(signer.Lies{Header: header})
		if _, err := b.signed(k, 3600); err == nil || !strings.Contains(err.Error(), want) {
			b.Errorf("a token with the header %s: got %v, want %s", header, err, want)
		}
	}
	// It names a key that is not there, or another algorithm than it signs by.
	for _, header := range []string{`{"alg":"ES256","kid":"fourth","typ":"JWT"}`, `{"alg":"ES384","kid":"third","typ":"JWT"}`} {
		p.Lie(signer.Lies{Header: header})
		token := b.signedToken(k)
		if got := b.who(token); got != "Unauthorized" {
			b.Errorf("a token with the header %s: got %s, want nobody", header, got)
		}
	}
	p.Lie(signer.Lies{})
}

// keptInSecrets holds that tokens which do not end are signed by the server's own key still.
func (b *joinBed) keptInSecrets(k kubernetes.Interface, want string) {
	b.Helper()
	sa, err := k.CoreV1().ServiceAccounts("kube-system").Get(b.Context(), "default", metav1.GetOptions{})
	b.must(err)
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kept", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default", corev1.ServiceAccountUIDKey: string(sa.UID)}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	token, err := b.s.issuer.IssueLegacy(sa, s)
	b.must(err)
	s.Data = map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token)}
	_, err = k.CoreV1().Secrets("kube-system").Create(b.Context(), s, metav1.CreateOptions{})
	b.must(err)
	b.believed(token, want)
}

func TestSignerThatDoesNotFitEndsTheStart(t *testing.T) {
	t.Parallel()
	p := signer.New(t)
	for want, c := range map[string]struct {
		lies signer.Lies
		life time.Duration
	}{
		"--service-account-max-token-expiration cannot be set longer than the token expiration supported by the signer: 1h0m0s > 30m0s": {signer.Lies{MaxLife: 1800}, time.Hour},
		"--service-account-signing-endpoint: signer at " + p.Socket + ": max token life supported by external-jwt-signer (1s)":          {signer.Lies{MaxLife: 1}, 0},
	} {
		p.Lie(c.lies)
		o, err := Options{Machine: Machine{DataDir: t.TempDir(), NodeIP: netip.MustParseAddr("192.0.2.7")}, Identity: Identity{Endpoint: p.Socket, MaxLife: c.life}}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		if err := newServer(o, addresses{}).keys(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
