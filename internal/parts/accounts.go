package parts

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// accounts are the service accounts of the controllers, by which each writes with its own
// rights. What controllers read comes from the caches of the part itself.
type accounts struct {
	main *https.Transport // as the part: asks for the tokens
	bare *https.Transport // the same servers, without a certificate or token of its own

	mu struct {
		sync.Mutex
		known map[string]*account
	}
}

// newAccounts asks for tokens as main. bare is to be run beside it.
func (p *process) newAccounts() (*accounts, error) {
	c := rest.AnonymousClientConfig(p.config)
	bare, err := connect(c, p.log, nil)
	if err != nil {
		return nil, err
	}
	a := &accounts{main: p.api, bare: bare}
	a.mu.known = map[string]*account{}
	return a, nil
}

// as is the API as the service account of that name in kube-system sees it.
func (a *accounts) as(name string) client.Transport {
	a.mu.Lock()
	defer a.mu.Unlock()
	own := a.mu.known[name]
	if own == nil {
		own = &account{name: name, part: a.main, turn: make(chan struct{}, 1)}
		own.self = a.bare.Bearing(controller.Agent(name), own.token)
		a.mu.known[name] = own
	}
	return own
}

// account is the API as one service account sees it.
type account struct {
	name string
	self *https.Transport // sends what it sends
	part client.Transport // has the caches, and asks for the tokens

	turn  chan struct{} // full while somebody looks at what follows
	held  string        // the token
	due   time.Time     // when another is asked for
	until time.Time     // when it ends
}

var _ client.Transport = (*account)(nil)

// Do performs one request.
func (a *account) Do(ctx context.Context, r *client.Request) (runtime.Object, error) {
	return a.self.Do(ctx, r)
}

// List performs a list.
func (a *account) List(ctx context.Context, r *client.Request) (client.List, error) {
	return a.self.List(ctx, r)
}

// Cache returns the part's cache.
func (a *account) Cache(def *resource.Def, scope string) *cache.Cache {
	return a.part.Cache(def, scope)
}

// Hold returns the part's cache.
func (a *account) Hold(def *resource.Def, scope string) (*cache.Cache, func()) {
	return a.part.Hold(def, scope)
}

// How long tokens are asked for, and how long it may take to get one.
const (
	tokenLife   = time.Hour
	tokenShare  = 0.8 // of its life, after which another is asked for, a random part earlier
	tokenJitter = 0.1
	tokenWithin = 30 * time.Second
)

// token is a good token of the account.
func (a *account) token(ctx context.Context) (string, error) {
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-a.turn }()
	if time.Now().Before(a.due) {
		return a.held, nil
	}
	err := a.renew(ctx)
	if err != nil && !time.Now().Before(a.until) {
		return "", fmt.Errorf("get a token of the service account %s/%s: %w", metav1.NamespaceSystem, a.name, err)
	}
	return a.held, nil // maybe one that is good for a while still
}

// renew gets a new token; the account is made if it is missing.
func (a *account) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tokenWithin)
	defer cancel()
	all := client.For(a.part, core.ServiceAccounts)
	answer, err := all.Post(ctx, metav1.NamespaceSystem, a.name, "token", wantedToken())
	if apierrors.IsNotFound(err) {
		_, err = all.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: a.name}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		answer, err = all.Post(ctx, metav1.NamespaceSystem, a.name, "token", wantedToken())
	}
	if err != nil {
		return err
	}
	got, ok := answer.(*authenticationv1.TokenRequest)
	if !ok || got.Status.Token == "" {
		return fmt.Errorf("the answer, of type %T, has no token", answer)
	}
	now := time.Now()
	life := got.Status.ExpirationTimestamp.Sub(now)
	a.held, a.until = got.Status.Token, now.Add(life)
	a.due = now.Add(time.Duration((tokenShare - tokenJitter*rand.Float64()) * float64(life)))
	return nil
}

func wantedToken() *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLife / time.Second))}}
}
