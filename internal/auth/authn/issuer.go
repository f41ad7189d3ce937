package authn

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/auth/signer"
	"github.com/kemudi/kemudi/internal/resource"
)

// Issuer makes and publishes the tokens of service accounts. It may be used
// concurrently.
type Issuer struct {
	o      IssuerOptions
	keys   atomic.Pointer[ring]
	began  time.Time
	looked atomic.Int64 // when it was last asked for newer keys, in nanoseconds since began
}

// ring is the keys of an issuer at one time.
type ring struct {
	signer  jose.Signer       // nil: nothing is signed in this process
	own     []jose.JSONWebKey // the signing one first
	outside *signer.Keys      // nil: there is no signer outside
}

// believed are the keys that have signed tokens which name that issuer. Beside a signer outside, the issuer's own keys
// are for the tokens that are kept in secrets alone.
func (r *ring) believed(issuer string) []jose.JSONWebKey {
	switch {
	case r.outside == nil:
		return r.own
	case issuer == legacyIssuer:
		return slices.Concat(r.own, r.outside.All)
	}
	return r.outside.All
}

// shown are the keys that others are told of.
func (r *ring) shown() []jose.JSONWebKey {
	if r.outside != nil {
		return r.outside.Shown
	}
	return r.own
}

// IssuerOptions say who issues.
type IssuerOptions struct {
	// Key signs. Required, unless there is a Signer.
	Key crypto.Signer
	// OldKeys have signed tokens that are still good.
	OldKeys []crypto.PublicKey
	// Signer, if not nil, signs all tokens but those that are kept in secrets, and says by which keys
	// they are good.
	Signer *signer.Signer
	// Newer says which keys of the issuer's own there are now, and nothing if they are as they were when it was last
	// asked: at most once a second, while tokens are made or shown. Nil: they stay as they are.
	Newer func() (Keys, bool)
	// URL is the name of the issuer, at which the documents about it can be
	// found. Default https://kubernetes.default.svc.cluster.local.
	URL string
	// Others are names that it had before: tokens that bear them are good still.
	Others []string
	// KeySetURL is where the public keys can be had, as the documents say. Default: below URL.
	KeySetURL string
	// Audiences are those of the API server. Default: URL and Others.
	Audiences []string
	// MaxLife bounds the life of tokens. Default: the Signer's bound, or none.
	MaxLife time.Duration
	// NoExtension keeps the life that node agents ask for. Otherwise they get
	// tokens of a year for old clients that never read their token again; those
	// are warned of in the audit log after the time asked for.
	NoExtension bool
}

// KeySetPath is where a server publishes the keys.
const KeySetPath = "/openid/v1/jwks"

// Keys are those of an issuer.
type Keys struct {
	Key     crypto.Signer      // signs
	OldKeys []crypto.PublicKey // have signed tokens that are still good
}

func (o IssuerOptions) withDefaults() (IssuerOptions, error) {
	if o.Key == nil && o.Signer == nil {
		return o, errors.New("token issuer options: no key")
	}
	if o.Signer != nil && o.MaxLife == 0 {
		o.MaxLife = o.Signer.MaxLife()
	}
	if o.URL == "" {
		o.URL = "https://kubernetes.default.svc.cluster.local"
	}
	if len(o.Audiences) == 0 {
		o.Audiences = append([]string{o.URL}, o.Others...)
	}
	if o.KeySetURL == "" {
		o.KeySetURL = o.URL + KeySetPath
	}
	return o, nil
}

// NewIssuer returns the issuer of o.
func NewIssuer(o IssuerOptions) (*Issuer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	i := &Issuer{o: o, began: time.Now()}
	keys, err := newRing(Keys{o.Key, o.OldKeys})
	if err != nil {
		return nil, err
	}
	i.keys.Store(keys)
	return i, nil
}

func newRing(k Keys) (*ring, error) {
	r := &ring{}
	if k.Key == nil {
		return r, nil
	}
	known := map[string]bool{}
	for _, key := range append([]crypto.PublicKey{k.Key.Public()}, k.OldKeys...) {
		web, err := webKey(key)
		if err != nil {
			return nil, err
		}
		if !known[web.KeyID] {
			known[web.KeyID] = true
			r.own = append(r.own, web)
		}
	}
	first := r.own[0]
	var err error
	r.signer, err = jose.NewSigner(jose.SigningKey{
		Algorithm: jose.SignatureAlgorithm(first.Algorithm),
		Key:       jose.JSONWebKey{Key: k.Key, KeyID: first.KeyID, Algorithm: first.Algorithm},
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("prepare to sign tokens: %w", err)
	}
	return r, nil
}

// ring is the keys that there are now.
func (i *Issuer) ring() *ring {
	i.look()
	for {
		r := i.keys.Load()
		if i.o.Signer == nil || r.outside == i.o.Signer.Keys() {
			return r
		}
		next := *r
		next.outside = i.o.Signer.Keys()
		i.keys.CompareAndSwap(r, &next) // own keys that are put there meanwhile stay
	}
}

// look asks for newer keys of the issuer's own, now and then.
func (i *Issuer) look() {
	if i.o.Newer == nil {
		return
	}
	last, now := i.looked.Load(), int64(time.Since(i.began))
	if now-last < int64(lookEvery) || !i.looked.CompareAndSwap(last, now) {
		return
	}
	if k, changed := i.o.Newer(); changed {
		if r, err := newRing(k); err == nil { // [CheckKeys] has said so before
			i.keys.Store(r)
		}
	}
}

// ringFor is the keys that there are now, after the signer outside was asked for newer ones if a token that names
// that issuer bears the ID of a key that is not known.
func (i *Issuer) ringFor(ctx context.Context, issuer, keyID string) *ring {
	r := i.ring()
	isIt := func(k jose.JSONWebKey) bool { return k.KeyID == keyID }
	if i.o.Signer == nil || keyID == "" || slices.ContainsFunc(r.believed(issuer), isIt) {
		return r
	}
	i.o.Signer.Find(ctx, keyID)
	return i.ring()
}

// CheckKeys says what is wrong with keys that tokens are to be signed and checked by.
func CheckKeys(k Keys) error {
	_, err := newRing(k)
	return err
}

// knows reports whether tokens that bear the name of that issuer may be its own.
func (i *Issuer) knows(name string) bool {
	return name == i.o.URL || name == legacyIssuer || slices.Contains(i.o.Others, name)
}

// webKey describes a public key. Its ID is upstream's: a digest of the key.
func webKey(key crypto.PublicKey) (jose.JSONWebKey, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return jose.JSONWebKey{}, fmt.Errorf("encode public key: %w", err)
	}
	digest := sha256.Sum256(der)
	return signer.WebKey(key, base64.RawURLEncoding.EncodeToString(digest[:]))
}

// Audiences are those of the API server.
func (i *Issuer) Audiences() []string { return i.o.Audiences }

// MaxSeconds is how long a token may live, whoever asks for more.
func (i *Issuer) MaxSeconds() int64 {
	if i.o.MaxLife > 0 {
		return int64(i.o.MaxLife / time.Second)
	}
	return math.MaxInt64
}

// Lives of tokens.
const (
	defaultLife = time.Hour
	// agentLife is what node agents ask for, and only they: it marks tokens
	// whose life may be extended.
	agentLife    = 3607 * time.Second
	extendedLife = 365 * 24 * time.Hour
)

// Bound is what a token is good with: it ends when one of these objects goes.
type Bound struct {
	ServiceAccount *corev1.ServiceAccount // required
	Pod            *corev1.Pod
	Secret         *corev1.Secret
	Node           *corev1.Node // that the pod runs on, or that the token is for alone
}

// claims are what a token says beside the standard ones.
type claims struct {
	Kubernetes *kubernetesClaims `json:"kubernetes.io,omitempty"`
	legacyClaims
}

type kubernetesClaims struct {
	Namespace string           `json:"namespace,omitempty"`
	Node      *ref             `json:"node,omitempty"`
	Pod       *ref             `json:"pod,omitempty"`
	Secret    *ref             `json:"secret,omitempty"`
	Svcacct   ref              `json:"serviceaccount,omitempty"`
	WarnAfter *jwt.NumericDate `json:"warnafter,omitempty"`
}

type ref struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// legacyClaims are those of tokens that live in secrets and never end.
type legacyClaims struct {
	Namespace string `json:"kubernetes.io/serviceaccount/namespace,omitempty"`
	Secret    string `json:"kubernetes.io/serviceaccount/secret.name,omitempty"`
	Name      string `json:"kubernetes.io/serviceaccount/service-account.name,omitempty"`
	UID       string `json:"kubernetes.io/serviceaccount/service-account.uid,omitempty"`
}

// legacyIssuer is the issuer that tokens in secrets name.
const legacyIssuer = "kubernetes/serviceaccount"

// Issue makes the token that req asks for and returns the answer; req stays as
// it is. b.Pod's or b.Secret's presence must fit req.Spec.BoundObjectRef. The audit is
// told by which ID the token is known.
func (i *Issuer) Issue(ctx context.Context, req *authenticationv1.TokenRequest, b Bound) (*authenticationv1.TokenRequest, error) {
	answer := req.DeepCopy()
	if len(answer.Spec.Audiences) == 0 {
		answer.Spec.Audiences = i.o.Audiences
	}
	life := defaultLife
	if answer.Spec.ExpirationSeconds != nil {
		life = time.Duration(*answer.Spec.ExpirationSeconds) * time.Second
	}
	if i.o.MaxLife > 0 {
		life = min(life, i.o.MaxLife)
	}
	now := time.Now()
	warn := time.Time{}
	if life == agentLife && b.Pod != nil && !i.o.NoExtension && i.isOwn(answer.Spec.Audiences) {
		warn, life = now.Add(life), extendedLife
		if i.o.Signer != nil {
			life = min(life, i.o.Signer.MaxLife())
		}
	}
	id := uuid.NewString()
	token, err := i.sign(ctx, b, &jwt.Claims{
		Issuer: i.o.URL, Audience: answer.Spec.Audiences, ID: id,
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(life)),
	}, warn)
	if err != nil {
		return nil, err
	}
	audit.Annotate(ctx, serviceaccount.IssuedCredentialIDAuditAnnotationKey, "JTI="+id)
	end := now.Add(life)
	if !warn.IsZero() {
		end = warn // so that the agent renews in time
	}
	answer.Spec.ExpirationSeconds = new(int64(end.Sub(now) / time.Second))
	answer.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.Time{Time: end}}
	return answer, nil
}

func (i *Issuer) isOwn(audiences []string) bool {
	return len(intersect(audiences, i.o.Audiences)) == len(audiences)
}

// sign makes a token that says of itself what is in standard, whose subject it sets.
func (i *Issuer) sign(ctx context.Context, b Bound, standard *jwt.Claims, warn time.Time) (string, error) {
	sa := b.ServiceAccount
	k := &kubernetesClaims{Namespace: sa.Namespace, Svcacct: ref{sa.Name, string(sa.UID)}}
	if b.Pod != nil {
		k.Pod = refTo(b.Pod)
	}
	if b.Secret != nil {
		k.Secret = refTo(b.Secret)
	}
	if b.Node != nil {
		k.Node = refTo(b.Node)
	}
	if !warn.IsZero() {
		k.WarnAfter = jwt.NewNumericDate(warn)
	}
	standard.Subject = serviceaccount.MakeUsername(sa.Namespace, sa.Name)
	// A list also if there is one audience: readers of upstream's tokens expect it.
	list := map[string]any{"aud": []string(standard.Audience)}
	if i.o.Signer == nil {
		return jwt.Signed(i.ring().signer).Claims(standard).Claims(list).Claims(claims{Kubernetes: k}).Serialize()
	}
	payload, err := json.Marshal(struct {
		*jwt.Claims
		Audience []string `json:"aud,omitempty"`
		claims
	}{standard, standard.Audience, claims{Kubernetes: k}})
	if err != nil {
		return "", fmt.Errorf("encode claims: %w", err)
	}
	return i.o.Signer.Sign(ctx, payload)
}

// IssueLegacy makes a token that does not end, to be kept in a secret.
func (i *Issuer) IssueLegacy(sa *corev1.ServiceAccount, secret *corev1.Secret) (string, error) {
	keys := i.ring()
	if keys.signer == nil {
		return "", errors.New("this server has no key for tokens that are kept in secrets")
	}
	standard := jwt.Claims{Issuer: legacyIssuer, Subject: serviceaccount.MakeUsername(sa.Namespace, sa.Name)}
	own := claims{legacyClaims: legacyClaims{Namespace: sa.Namespace, Secret: secret.Name, Name: sa.Name, UID: string(sa.UID)}}
	return jwt.Signed(keys.signer).Claims(standard).Claims(own).Serialize()
}

func refTo(obj resource.Object) *ref { return &ref{obj.GetName(), string(obj.GetUID())} }

// Publishes reports whether others can find the documents by the issuer's name: it is a URL of HTTPS and
// nothing more.
func (i *Issuer) Publishes() bool {
	u, err := url.Parse(i.o.URL)
	return err == nil && u.Scheme == "https" && u.RawQuery == "" && u.Fragment == ""
}

// Discovery is the document at /.well-known/openid-configuration; its media
// type is application/json.
func (i *Issuer) Discovery() ([]byte, error) {
	var algorithms []string
	for _, k := range i.ring().shown() {
		algorithms = append(algorithms, k.Algorithm)
	}
	return json.Marshal(map[string]any{
		"issuer":                                i.o.URL,
		"jwks_uri":                              i.o.KeySetURL,
		"response_types_supported":              []string{"id_token"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": unique(algorithms),
	})
}

// KeySet is the document at /openid/v1/jwks; its media type is application/jwk-set+json.
func (i *Issuer) KeySet() ([]byte, error) {
	return json.Marshal(jose.JSONWebKeySet{Keys: i.ring().shown()})
}

// FreshFor is how long readers of these documents may keep them.
func (i *Issuer) FreshFor() time.Duration {
	if i.o.Signer != nil {
		return i.o.Signer.FreshFor()
	}
	return time.Hour
}
