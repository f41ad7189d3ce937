package edgefeed

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// secrets are those that Ingresses and Gateways need, each held by itself: a node may read no others.
type secrets struct {
	api client.Transport
	in  *intake
	g   *task.Group

	mu struct {
		sync.Mutex
		held      map[string]*held // by key
		followers map[*cache.Cache]*follower
	}
}

type held struct {
	c       *cache.Cache
	release func()
}

// follower tells of the changes of a cache, which on a server is one of all Secrets.
type follower struct {
	secrets int // that are held of it
	end     context.CancelCauseFunc
}

func newSecrets(g *task.Group, api client.Transport, in *intake) *secrets {
	s := &secrets{api: api, in: in, g: g}
	s.mu.held, s.mu.followers = map[string]*held{}, map[*cache.Cache]*follower{}
	g.Go("release secrets", func(ctx context.Context) error {
		<-ctx.Done()
		s.want(nil)
		return nil
	})
	return s
}

// get returns a Secret as it is known.
func (s *secrets) get(namespace, name string) *corev1.Secret {
	key := cache.Key(namespace, name)
	s.mu.Lock()
	h := s.mu.held[key]
	s.mu.Unlock()
	if h == nil {
		return nil
	}
	it := h.c.Get(key)
	if it == nil {
		return nil
	}
	return it.Object.(*corev1.Secret)
}

// want holds these Secrets, by key, and no others, and returns what is to be waited for before
// they are known.
func (s *secrets) want(keys []string) (waits []<-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := map[string]bool{}
	for _, key := range keys {
		wanted[key] = true
		if s.mu.held[key] == nil {
			waits = append(waits, s.holdLocked(key))
		}
	}
	for key, h := range s.mu.held {
		if wanted[key] {
			continue
		}
		delete(s.mu.held, key)
		if f := s.mu.followers[h.c]; f != nil {
			if f.secrets--; f.secrets == 0 {
				f.end(errReleased)
				delete(s.mu.followers, h.c)
			}
		}
		h.release()
	}
	return waits
}

var errReleased = errors.New("no Ingress or Gateway needs it any more")

func (s *secrets) holdLocked(key string) <-chan struct{} {
	namespace, name, _ := strings.Cut(key, "/")
	c, release := s.api.Hold(core.Secrets.Def, "metadata.namespace="+namespace+",metadata.name="+name)
	s.mu.held[key] = &held{c, release}
	f := s.mu.followers[c]
	if f == nil {
		f = &follower{}
		var ctx context.Context
		ctx, f.end = context.WithCancelCause(s.g.Context())
		s.mu.followers[c] = f
		s.g.Go("follow secrets", func(context.Context) error {
			err := c.Each(ctx, cache.FollowOptions{}, func(deltas []cache.Delta) error {
				changes := make([]func(*models), len(deltas))
				for i, d := range deltas {
					key := d.Last().Key
					changes[i] = func(m *models) { m.secret(key) }
				}
				s.in.put(0, changes...)
				return nil
			})
			if ctx.Err() != nil {
				return nil
			}
			return err
		})
	} else {
		// Who follows the cache may have told of it before it was asked for.
		s.in.put(0, func(m *models) { m.secret(key) })
	}
	f.secrets++
	return c.Synced()
}

// await waits until what is waited for has come, or for so long: a Secret that may not be read
// keeps nobody from being served.
func await(ctx context.Context, waits []<-chan struct{}, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for _, w := range waits {
		select {
		case <-w:
		case <-ctx.Done():
			return
		}
	}
}
