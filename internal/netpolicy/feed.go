package netpolicy

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/cache"
)

// feed carries changes from the caches' watches, and from the node agent, to the one
// goroutine that owns the model. Watches never wait for it.
type feed struct {
	ready chan struct{} // holds one token: something is pending
	soon  chan struct{} // holds one token: a pod waits for it

	mu struct {
		sync.Mutex
		pending []func(*Model)
		waiting []waiting
		synced  map[string]bool // kinds whose first state has come
		over    error           // why nobody takes any more
	}
}

// waiting is who is told when the rules for a pod are in force.
type waiting struct {
	pod  types.NamespacedName
	done chan error // has room for the one answer
}

// kinds are the kinds that must have come before anything is done: rules from half a view
// would end connections that are allowed.
var kinds = []string{"policy", "namespace", "pod"}

func newFeed() *feed {
	f := &feed{ready: make(chan struct{}, 1), soon: make(chan struct{}, 1)}
	f.mu.synced = map[string]bool{}
	return f
}

func (f *feed) wake() { token(f.ready) }

func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // there is a token already
	}
}

// pause waits until a time, or until a pod waits for what is pending.
func (f *feed) pause(ctx context.Context, until time.Time) error {
	left := time.Until(until)
	if left <= 0 {
		return nil
	}
	over := time.NewTimer(left)
	defer over.Stop()
	select {
	case <-over.C:
	case <-f.soon:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// put hands over a change; of a kind, its whole state first.
func (f *feed) put(kind string, change func(*Model)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.pending = append(f.mu.pending, change)
	if kind != "" {
		f.mu.synced[kind] = true
	}
	f.wake()
}

// await hands over a change, and returns where it is said that the rules for a pod are in
// force with it, or why they will not be.
func (f *feed) await(pod types.NamespacedName, change func(*Model)) <-chan error {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := waiting{pod, make(chan error, 1)}
	if f.mu.over != nil {
		w.done <- f.mu.over
		return w.done
	}
	f.mu.pending, f.mu.waiting = append(f.mu.pending, change), append(f.mu.waiting, w)
	token(f.soon)
	f.wake()
	return w.done
}

// intake is what has come in since the last take.
type intake struct {
	changes []func(*Model)
	waiting []waiting
}

// take returns what is pending; ok is false until every kind has come.
func (f *feed) take() (in intake, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.synced) < len(kinds) {
		return intake{}, false
	}
	in = intake{f.mu.pending, f.mu.waiting}
	f.mu.pending, f.mu.waiting = nil, nil
	select {
	case <-f.soon: // who waits has been taken, too
	default:
	}
	return in, true
}

// end answers all who wait, now and later.
func (f *feed) end(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.over = why
	for _, w := range f.mu.waiting {
		w.done <- why
	}
	f.mu.waiting = nil
}

// follow returns the task that feeds one kind: at first all objects that there are, and from
// then on each change.
func (f *feed) follow(kind string, from *cache.Cache, change func(*Model, cache.Delta)) func(context.Context) error {
	return func(ctx context.Context) error {
		return from.Each(ctx, cache.FollowOptions{}, func(deltas []cache.Delta) error {
			f.put(kind, func(m *Model) {
				for _, d := range deltas {
					change(m, d)
				}
			})
			return nil
		})
	}
}

func changePolicy(m *Model, d cache.Delta) {
	if p := d.Last().Object.(*networkingv1.NetworkPolicy); d.Now == nil {
		m.DeletePolicy(p.Namespace, p.Name)
	} else {
		m.SetPolicy(p)
	}
}

func changeNamespace(m *Model, d cache.Delta) {
	if ns := d.Last().Object.(*corev1.Namespace); d.Now == nil {
		m.DeleteNamespace(ns.Name)
	} else {
		m.SetNamespace(ns)
	}
}

func changePod(m *Model, d cache.Delta) {
	if p := d.Last().Object.(*corev1.Pod); d.Now == nil {
		m.DeletePod(p)
	} else {
		m.SetPod(p)
	}
}
