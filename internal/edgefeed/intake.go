package edgefeed

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/ingress"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// intake carries what has changed from the caches to the one goroutine that owns the model.
type intake struct {
	ready chan struct{} // holds a token: something is pending

	mu struct {
		sync.Mutex
		pending []func(*models)
		missing int   // kinds whose first state has not come
		rev     int64 // of the newest slice among what was put
	}
}

func newIntake() *intake { return &intake{ready: make(chan struct{}, 1)} }

// put takes in changes; rev is the revision of the newest slice among them, 0 if there is none.
func (t *intake) put(rev int64, changes ...func(*models)) {
	t.mu.Lock()
	t.mu.rev = max(t.mu.rev, rev)
	t.mu.pending = append(t.mu.pending, changes...)
	t.mu.Unlock()
	select {
	case t.ready <- struct{}{}:
	default: // there is a token already
	}
}

// came notes the first state of a kind.
func (t *intake) came() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.missing--
}

// take returns what is pending, and the revision of the newest slice up to there; ok is false until
// all kinds have come.
func (t *intake) take() (changes []func(*models), rev int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.missing > 0 {
		return nil, 0, false
	}
	changes, t.mu.pending = t.mu.pending, nil
	return changes, t.mu.rev, true
}

// source is a kind that is followed.
type source struct {
	slices bool // it has EndpointSlices
	c      *cache.Cache
	change func(cache.Delta) func(*models)
}

// follow starts to follow what tables are made of, but for Secrets, and returns the objects.
func (t *intake) follow(g *task.Group, api client.Transport) *ingress.Cached {
	hold := func(def *resource.Def) *cache.Cache {
		c, release := api.Hold(def, "")
		g.Go("release", func(ctx context.Context) error {
			<-ctx.Done()
			release()
			return nil
		})
		return c
	}
	known := &ingress.Cached{
		IngressClasses: client.Reader[*networkingv1.IngressClass]{Cache: hold(networking.IngressClasses.Def)},
		Services:       client.Cached(api, core.Services, ""),
		EndpointSlices: client.Cached(api, discovery.EndpointSlices, ""),
	}
	sources := []source{
		{false, hold(networking.Ingresses.Def), func(d cache.Delta) func(*models) {
			var now *networkingv1.Ingress
			if d.Now != nil {
				now = d.Now.Object.(*networkingv1.Ingress)
			}
			key := d.Last().Key
			return func(m *models) { m.ingresses.Set(key, now) }
		}},
		{false, known.IngressClasses.Cache, func(cache.Delta) func(*models) { return func(m *models) { m.ingresses.Classes() } }},
		{false, known.Services.Cache, func(d cache.Delta) func(*models) {
			s := d.Last().Object.(*corev1.Service)
			return serviceChanged(s.Namespace, s.Name)
		}},
		{true, known.EndpointSlices.Cache, func(d cache.Delta) func(*models) {
			s := d.Last().Object.(*discoveryv1.EndpointSlice)
			return serviceChanged(s.Namespace, s.Labels[discoveryv1.LabelServiceName])
		}},
	}
	t.mu.missing = len(sources)
	for _, s := range sources {
		g.Go("follow", func(ctx context.Context) error {
			first := true
			return s.c.Each(ctx, cache.FollowOptions{}, func(deltas []cache.Delta) error {
				changes := make([]func(*models), len(deltas))
				var rev int64
				for i, d := range deltas {
					changes[i] = s.change(d)
					if s.slices {
						rev = max(rev, d.Last().Rev)
					}
				}
				if first {
					t.came()
					first = false
				}
				t.put(rev, changes...)
				return nil
			})
		})
	}
	return known
}

func serviceChanged(namespace, name string) func(*models) {
	key := cache.Key(namespace, name)
	return func(m *models) {
		m.ingresses.Service(key)
		m.gateways.Service(key)
		m.balancers.Service(key)
		if key == gatewayService {
			m.named()
		}
	}
}
