package delegated

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api/authentication"
	"github.com/kemudi/kemudi/internal/api/authorization"
	"github.com/kemudi/kemudi/internal/client"
)

// How long the API server's answers hold, as upstream's agent keeps them, and
// how long it may take to give them.
const (
	TokenGood  = 2 * time.Minute
	tokenBad   = 10 * time.Second
	RightGiven = 5 * time.Minute
	RightNot   = 30 * time.Second
	reviewTime = 10 * time.Second
)

// maxAnswers bounds what is remembered: who tries out tokens must not fill the memory.
const maxAnswers = 4096

// answerCache keeps answers for a while.
type answerCache[K comparable, V any] struct {
	mu      sync.Mutex
	answers map[K]remembered[V]
}

type remembered[V any] struct {
	value V
	until time.Time
}

func (c *answerCache[K, V]) get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.answers[key]
	return r.value, ok && time.Now().Before(r.until)
}

func (c *answerCache[K, V]) keep(key K, value V, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == nil || len(c.answers) >= maxAnswers {
		c.answers = map[K]remembered[V]{}
	}
	c.answers[key] = remembered[V]{value, time.Now().Add(d)}
}

// Tokens knows users by what the API server says of their tokens.
type Tokens struct {
	reviews client.Client[*authenticationv1.TokenReview]
	known   answerCache[[sha256.Size]byte, user.Info] // nil: a bad one
}

var _ authenticator.Token = (*Tokens)(nil)

// NewTokens has the API server asked by t, whose user must be allowed to have tokens reviewed.
func NewTokens(t client.Transport) *Tokens {
	return &Tokens{reviews: client.For(t, authentication.TokenReviews)}
}

// AuthenticateToken says whose token it is.
func (k *Tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	digest := sha256.Sum256([]byte(token))
	u, ok := k.known.get(digest)
	if !ok {
		var err error
		if u, err = k.ask(ctx, token); err != nil {
			return nil, false, err
		}
		if u == nil {
			k.known.keep(digest, nil, tokenBad)
		} else {
			k.known.keep(digest, u, TokenGood)
		}
	}
	return &authenticator.Response{User: u}, u != nil, nil
}

func (k *Tokens) ask(ctx context.Context, token string) (user.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	r, err := k.reviews.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
	if err != nil {
		return nil, fmt.Errorf("review token: %w", err)
	}
	if !r.Status.Authenticated {
		return nil, nil
	}
	u := &user.DefaultInfo{Name: r.Status.User.Username, UID: r.Status.User.UID, Groups: r.Status.User.Groups, Extra: map[string][]string{}}
	for name, values := range r.Status.User.Extra {
		u.Extra[name] = values
	}
	return u, nil
}

// Access is what somebody wants to do: with a node's agent, or with what is served at a path.
type Access struct {
	Verb string // empty: one that no right covers

	Node, Sub string // the node, and the subresource of it that the right is to
	Path      string // where there is no node
}

// Rights knows what users may do by what the API server says.
type Rights struct {
	reviews client.Client[*authorizationv1.SubjectAccessReview]
	known   answerCache[right, bool]
}

type right struct {
	Access
	user, uid, groups string
}

// NewRights has the API server asked by t, whose user must be allowed to have access reviewed.
func NewRights(t client.Transport) *Rights {
	return &Rights{reviews: client.For(t, authorization.SubjectAccessReviews)}
}

var errMethod = errors.New("no right covers the method")

// May says whether a user may do something.
func (k *Rights) May(ctx context.Context, u user.Info, a Access) (bool, error) {
	if a.Verb == "" {
		return false, errMethod
	}
	key := right{a, u.GetName(), u.GetUID(), strings.Join(slices.Sorted(slices.Values(u.GetGroups())), "\n")}
	if allowed, ok := k.known.get(key); ok {
		return allowed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	q := authorizationv1.SubjectAccessReviewSpec{
		User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: map[string]authorizationv1.ExtraValue{},
	}
	if a.Node == "" {
		q.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: a.Verb, Path: a.Path}
	} else {
		q.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: a.Verb, Version: "v1", Resource: "nodes", Subresource: a.Sub, Name: a.Node}
	}
	for name, values := range u.GetExtra() {
		q.Extra[name] = values
	}
	r, err := k.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: q})
	if err != nil {
		return false, fmt.Errorf("review access: %w", err)
	}
	if r.Status.Allowed {
		k.known.keep(key, true, RightGiven)
	} else {
		k.known.keep(key, false, RightNot)
	}
	return r.Status.Allowed, nil
}
