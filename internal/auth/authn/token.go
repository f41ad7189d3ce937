package authn

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/auth/signer"
	"github.com/kemudi/kemudi/internal/resource"
)

// Objects reads the objects that tokens are bound to; nil if there is none.
// The functions must not block for long.
type Objects struct {
	ServiceAccount func(ctx context.Context, namespace, name string) *corev1.ServiceAccount
	Secret         func(ctx context.Context, namespace, name string) *corev1.Secret
	Pod            func(ctx context.Context, namespace, name string) *corev1.Pod
	Node           func(ctx context.Context, name string) *corev1.Node
	// Used, if not nil, is told of the secrets whose tokens were shown, and were good or
	// had been marked invalid.
	Used func(*corev1.Secret)
	// Fresh, if not nil, returns when the functions show all that was written
	// before it was called: a token is not refused because they are behind.
	Fresh func(ctx context.Context) error
	// Registry, if not nil, is where the uses of tokens are counted.
	Registry *prometheus.Registry
}

// ServiceAccountTokens knows service accounts by the tokens that an Issuer has
// made for them. A token is good while what it is bound to exists.
type ServiceAccountTokens struct {
	issuer  *Issuer
	objects Objects
	metrics *tokenMetrics

	mu struct {
		sync.RWMutex
		known map[[sha256.Size]byte]*checked // tokens whose signature was checked
	}
}

var _ authenticator.Token = (*ServiceAccountTokens)(nil)

// NewServiceAccountTokens returns the reader of i's tokens.
func NewServiceAccountTokens(i *Issuer, o Objects) *ServiceAccountTokens {
	return &ServiceAccountTokens{issuer: i, objects: o, metrics: newTokenMetrics(o.Registry)}
}

// checked is what a token with a good signature says.
type checked struct {
	standard jwt.Claims
	own      claims
	user     user.Info // whose it is, if it is good
	keys     *ring     // that its signature was checked by
}

// deletedFor is how long an object may have been going before tokens bound to
// it are refused: what runs in a pod may need its token to end in order.
const deletedFor = time.Minute

// AuthenticateToken says whose token it is. Tokens of other issuers are none
// of its business.
func (s *ServiceAccountTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	c, err := s.check(ctx, token)
	if c == nil || err != nil {
		return nil, false, err
	}
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = s.issuer.o.Audiences
	}
	has := []string(c.standard.Audience)
	if c.standard.Issuer == legacyIssuer && len(has) == 0 {
		s.metrics.legacy.Inc()
		audit.Annotate(ctx, "authentication.k8s.io/legacy-token", c.standard.Subject)
		has = s.issuer.o.Audiences
	}
	auds := intersect(wanted, has)
	if len(auds) == 0 {
		return nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", has, wanted)
	}
	err = s.good(ctx, c, token)
	if err != nil && s.objects.Fresh != nil {
		if err := s.objects.Fresh(ctx); err != nil {
			return nil, false, err
		}
		err = s.good(ctx, c, token)
	}
	s.metrics.count(c, err)
	note(ctx, c, err)
	if err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: c.user, Audiences: auds}, true, nil
}

// note has the audit told of tokens that people should use no more.
func note(ctx context.Context, c *checked, err error) {
	if k := c.own.Kubernetes; err == nil && k != nil && k.WarnAfter != nil {
		if late := time.Since(k.WarnAfter.Time()); late > 0 {
			audit.Annotate(ctx, "authentication.k8s.io/stale-token",
				fmt.Sprintf("subject: %s, seconds after warning threshold: %d", c.standard.Subject, int64(late/time.Second)))
		}
	}
	if marked := (*markedError)(nil); errors.As(err, &marked) {
		namespace, name, _ := strings.Cut(marked.secret, "/")
		audit.Annotate(ctx, "authentication.k8s.io/legacy-token-invalidated", name+"/"+namespace)
	}
}

// good checks that a token with a good signature still is good.
func (s *ServiceAccountTokens) good(ctx context.Context, c *checked, token string) error {
	if c.standard.Issuer == legacyIssuer {
		return s.legacy(ctx, c, token)
	}
	return s.bound(ctx, c)
}

// check reads a token and checks its signature, once; nil if another issued it.
func (s *ServiceAccountTokens) check(ctx context.Context, token string) (*checked, error) {
	digest := sha256.Sum256([]byte(token))
	s.mu.RLock()
	c := s.mu.known[digest]
	s.mu.RUnlock()
	if c != nil && c.keys == s.issuer.ring() {
		return c, nil
	}
	if strings.Count(token, ".") != 2 {
		return nil, nil
	}
	parsed, err := jwt.ParseSigned(token, signer.Algorithms())
	if err != nil {
		return nil, nil
	}
	c = &checked{}
	if err := parsed.UnsafeClaimsWithoutVerification(&c.standard); err != nil {
		return nil, nil
	}
	if !s.issuer.knows(c.standard.Issuer) {
		return nil, nil
	}
	c.keys = s.issuer.ringFor(ctx, c.standard.Issuer, parsed.Headers[0].KeyID)
	if !c.signed(parsed) {
		return nil, errors.New("the token's signature is not this cluster's")
	}
	c.user = c.own.user(c.standard.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.known == nil || len(s.mu.known) >= maxKnown {
		s.mu.known = map[[sha256.Size]byte]*checked{}
	}
	s.mu.known[digest] = c
	return c, nil
}

// signed reads the claims if one of the keys has signed them.
func (c *checked) signed(parsed *jwt.JSONWebToken) bool {
	id := parsed.Headers[0].KeyID
	for _, key := range c.keys.believed(c.standard.Issuer) {
		if id != "" && id != key.KeyID {
			continue
		}
		if parsed.Claims(key.Key, &c.standard, &c.own) == nil {
			return true
		}
	}
	return false
}

// user is whose token it is.
func (c *claims) user(id string) user.Info {
	info := &serviceaccount.ServiceAccountInfo{Namespace: c.legacyClaims.Namespace, Name: c.Name, UID: c.UID}
	if k := c.Kubernetes; k != nil {
		info.Namespace, info.Name, info.UID = k.Namespace, k.Svcacct.Name, k.Svcacct.UID
		if id != "" {
			info.CredentialID = "JTI=" + id
		}
		if k.Pod != nil {
			info.PodName, info.PodUID = k.Pod.Name, k.Pod.UID
		}
		if k.Node != nil {
			info.NodeName, info.NodeUID = k.Node.Name, k.Node.UID
		}
	}
	u := info.UserInfo().(*user.DefaultInfo)
	u.Groups = append(u.Groups, user.AllAuthenticated)
	return u
}

// bound checks a token of today's kind.
func (s *ServiceAccountTokens) bound(ctx context.Context, c *checked) error {
	k := c.own.Kubernetes
	now := time.Now()
	switch {
	case k == nil:
		return errors.New("service account token has no claims of kubernetes.io")
	case c.standard.Expiry == nil || now.After(c.standard.Expiry.Time()):
		return errors.New("service account token has expired")
	case c.standard.NotBefore != nil && now.Before(c.standard.NotBefore.Time()):
		return errors.New("service account token is not valid yet")
	}
	if err := aliveAccount(k.Namespace, &k.Svcacct, s.objects.ServiceAccount(ctx, k.Namespace, k.Svcacct.Name)); err != nil {
		return err
	}
	if k.Secret != nil {
		if err := alive("secret", k.Secret, orNil(s.objects.Secret(ctx, k.Namespace, k.Secret.Name))); err != nil {
			return err
		}
	}
	switch {
	case k.Pod != nil:
		// The node in a pod's token says where the pod runs; the token ends with the pod.
		return alive("pod", k.Pod, orNil(s.objects.Pod(ctx, k.Namespace, k.Pod.Name)))
	case k.Node != nil:
		return alive("node", k.Node, orNil(s.objects.Node(ctx, k.Node.Name)))
	}
	return nil
}

// legacy checks a token that is kept in a secret. The client is warned of one that a cluster of
// old has made without being asked: it ends if nobody uses it for long.
func (s *ServiceAccountTokens) legacy(ctx context.Context, c *checked, token string) error {
	l := c.own.legacyClaims
	if l.Namespace == "" || l.Name == "" || l.UID == "" || l.Secret == "" {
		return errors.New("service account token lacks claims")
	}
	if c.standard.Subject != serviceaccount.MakeUsername(l.Namespace, l.Name) {
		return errors.New("sub claim of the service account token is invalid")
	}
	secret := s.objects.Secret(ctx, l.Namespace, l.Secret)
	if secret == nil || secret.DeletionTimestamp != nil || string(secret.Data[corev1.ServiceAccountTokenKey]) != token {
		return errInvalidated
	}
	account := s.objects.ServiceAccount(ctx, l.Namespace, l.Name)
	if err := aliveAccount(l.Namespace, &ref{l.Name, l.UID}, account); err != nil {
		return err
	}
	if s.objects.Used != nil {
		s.objects.Used(secret)
	}
	if secret.Labels[core.LabelTokenInvalidSince] != "" {
		return &markedError{secret: l.Namespace + "/" + l.Secret, account: l.Namespace + "/" + l.Name}
	}
	generated := slices.ContainsFunc(account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == secret.Name })
	s.metrics.kept(generated)
	if !generated {
		audit.Annotate(ctx, "authentication.k8s.io/legacy-token-manual-secret", secret.Name)
	} else {
		audit.Annotate(ctx, "authentication.k8s.io/legacy-token-autogenerated-secret", secret.Name)
		warning.AddWarning(ctx, "", "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens.")
	}
	return nil
}

// markedError says that a token would be good if its secret were not marked.
type markedError struct{ secret, account string }

func (e *markedError) Error() string {
	return fmt.Sprintf("the token in secret %s for service account %s has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '%s' label from the secret to temporarily allow use of this token",
		e.secret, e.account, core.LabelTokenInvalidSince)
}

// alive checks that the object that a token is bound to is there and the same.
func alive(what string, r *ref, obj resource.Object) error {
	switch {
	case obj == nil || isGone(obj):
		return errInvalidated
	case string(obj.GetUID()) != r.UID:
		return fmt.Errorf("%s UID (%s) does not match service account %s ref claim (%s)", what, obj.GetUID(), what, r.UID)
	}
	return nil
}

// errInvalidated is the end of tokens whose secret, pod or node is gone.
var errInvalidated = errors.New("service account token has been invalidated")

// isGone reports that something has been on its way out for too long to believe in it.
func isGone(obj resource.Object) bool {
	return obj.GetDeletionTimestamp() != nil && time.Since(obj.GetDeletionTimestamp().Time) > deletedFor
}

// aliveAccount checks the service account itself.
func aliveAccount(namespace string, r *ref, account *corev1.ServiceAccount) error {
	switch {
	case account == nil:
		return apierrors.NewNotFound(core.ServiceAccounts.Def.GroupResource(), r.Name)
	case isGone(account):
		return fmt.Errorf("service account %s/%s has been deleted", namespace, r.Name)
	case string(account.UID) != r.UID:
		return fmt.Errorf("service account UID (%s) does not match claim (%s)", account.UID, r.UID)
	}
	return nil
}

// orNil turns a nil pointer into a nil interface.
func orNil[T interface {
	comparable
	resource.Object
}](obj T) resource.Object {
	var none T
	if obj == none {
		return nil
	}
	return obj
}

func intersect(a, b []string) []string {
	var both []string
	for _, s := range a {
		if slices.Contains(b, s) {
			both = append(both, s)
		}
	}
	return both
}

func unique(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}
