package authn

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// CacheOptions say what is remembered of answers about tokens.
type CacheOptions struct {
	Good    time.Duration // how long it is remembered whose a token is; 0: not at all
	Bad     time.Duration // how long, that it is nobody's; 0: not at all. What went wrong is not remembered
	Timeout time.Duration // how long an answer may take; 0: as long as the request has
	Metrics *CacheMetrics // required
}

// Cached remembers for some time what another authenticator has said of tokens. While that is asked about
// a token, who else shows it waits for the same answer. It keeps no tokens, only their digests.
type Cached struct {
	of  authenticator.Token
	o   CacheOptions
	key [sha256.Size]byte // of the digests, so that nobody can choose tokens that fall together

	mu struct {
		sync.Mutex
		known  map[digest]*verdict
		asking map[digest]*verdict
	}
}

type digest [sha256.Size]byte

// verdict is an answer, or one to come.
type verdict struct {
	done  chan struct{} // closed when the rest is there
	res   *authenticator.Response
	ok    bool
	err   error
	gone  bool // who asked has not waited for it
	until time.Time
}

var _ authenticator.Token = (*Cached)(nil)

// NewCached returns the cache of what of says.
func NewCached(of authenticator.Token, o CacheOptions) *Cached {
	c := &Cached{of: of, o: o}
	_, _ = rand.Read(c.key[:]) // it does not fail
	c.mu.known, c.mu.asking = map[digest]*verdict{}, map[digest]*verdict{}
	return c
}

func (c *Cached) digest(token string, audiences []string) (d digest) {
	h := hmac.New(sha256.New, c.key[:])
	for _, part := range append([]string{token}, audiences...) {
		_ = binary.Write(h, binary.BigEndian, uint32(len(part))) // a hash takes everything
		_, _ = h.Write([]byte(part))
	}
	return digest(h.Sum(nil))
}

// AuthenticateToken says whose token it is.
func (c *Cached) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	began := time.Now()
	audiences, _ := authenticator.AudiencesFrom(ctx)
	id := c.digest(token, audiences)
	for {
		c.mu.Lock()
		v := c.mu.known[id]
		if v != nil && time.Now().Before(v.until) {
			c.mu.Unlock()
			c.o.Metrics.asked("hit", began)
			return v.res, v.ok, v.err
		}
		v = c.mu.asking[id]
		if v == nil {
			v = &verdict{done: make(chan struct{}), gone: true}
			c.mu.asking[id] = v
			c.mu.Unlock()
			c.ask(ctx, id, v, token)
		} else {
			c.mu.Unlock()
			if err := c.await(ctx, v); err != nil {
				return nil, false, err
			}
			if v.gone {
				continue // somebody else has to ask
			}
		}
		c.o.Metrics.asked("miss", began)
		return v.res, v.ok, v.err
	}
}

// await waits for the answer that another has asked for.
func (c *Cached) await(ctx context.Context, v *verdict) error {
	defer c.o.Metrics.waits("blocked")()
	select {
	case <-v.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask asks, remembers the answer in v, and tells those who wait for it.
func (c *Cached) ask(ctx context.Context, id digest, v *verdict, token string) {
	defer func() { // after a panic too
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.mu.asking, id)
		if v.until.After(time.Now()) {
			c.keepLocked(id, v)
		}
		close(v.done)
	}()
	defer c.o.Metrics.waits("in_flight")()
	within := ctx
	if c.o.Timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, c.o.Timeout)
		defer cancel()
	}
	v.res, v.ok, v.err = c.of.AuthenticateToken(within, token)
	v.gone = v.err != nil && ctx.Err() != nil
	switch {
	case v.err != nil:
		c.o.Metrics.fetched("error")
		return
	case v.ok:
		v.until = time.Now().Add(c.o.Good)
	default:
		v.until = time.Now().Add(c.o.Bad)
	}
	c.o.Metrics.fetched("ok")
}

// keepLocked remembers an answer; if there are too many, those that have ended are forgotten, or else all.
func (c *Cached) keepLocked(id digest, v *verdict) {
	if len(c.mu.known) >= maxKnown {
		now := time.Now()
		for other, v := range c.mu.known {
			if !now.Before(v.until) {
				delete(c.mu.known, other)
			}
		}
		if len(c.mu.known) >= maxKnown {
			clear(c.mu.known)
		}
	}
	c.mu.known[id] = v
}
