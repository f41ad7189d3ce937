package authn

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// Renewed is a chain whose options become others while it is used, as files are exchanged: it is made
// anew then. It may be used concurrently.
type Renewed struct {
	edition func() any // comparable; another one: the options are others
	options func() Options

	mu struct {
		sync.Mutex
		looked  time.Time
		edition any
		chain   *Authenticator
	}
}

var (
	_ authenticator.Request = (*Renewed)(nil)
	_ authenticator.Token   = (*Renewed)(nil)
)

// lookEvery is how long who is believed may be out of date.
const lookEvery = time.Second

// NewRenewed returns a chain. Both functions are called by one request at a time; options, once for
// each edition.
func NewRenewed(edition func() any, options func() Options) *Renewed {
	return &Renewed{edition: edition, options: options}
}

// chain is the chain as it is now.
func (a *Renewed) chain() *Authenticator {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.chain != nil && time.Since(a.mu.looked) < lookEvery {
		return a.mu.chain
	}
	if now := a.edition(); a.mu.chain == nil || now != a.mu.edition {
		a.mu.chain, a.mu.edition = New(a.options()), now
	}
	a.mu.looked = time.Now()
	return a.mu.chain
}

// AuthenticateRequest is as that of [Authenticator].
func (a *Renewed) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	return a.chain().AuthenticateRequest(r)
}

// AuthenticateToken is as that of [Authenticator].
func (a *Renewed) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return a.chain().AuthenticateToken(ctx, token)
}
