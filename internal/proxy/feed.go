package proxy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// feed carries changes of objects from the caches' watches to the one goroutine
// that owns the model. Watches never wait for it.
type feed struct {
	ready chan struct{} // holds one token: something is pending

	mu struct {
		sync.Mutex
		pending []func(*Model)
		since   time.Time       // when the first of pending came
		synced  map[string]bool // kinds whose first state has come
		causes  []time.Time     // when what led to pending slice changes happened
		counts  map[string]int  // changes by kind, not counting first states
	}
}

// kinds are the kinds that must have come before anything is done: rules from
// half a view would take services away.
var kinds = []string{"service", "endpointslice", "pod", "node"}

func newFeed() *feed {
	f := &feed{ready: make(chan struct{}, 1)}
	f.mu.synced = map[string]bool{}
	f.mu.counts = map[string]int{}
	return f
}

// put hands over a change, or the whole state of a kind.
func (f *feed) put(kind string, whole bool, n int, change func(*Model)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.pending) == 0 {
		f.mu.since = time.Now()
	}
	f.mu.pending = append(f.mu.pending, change)
	if whole {
		f.mu.synced[kind] = true
	} else {
		f.mu.counts[kind] += n
	}
	f.wake()
}

func (f *feed) wake() {
	select {
	case f.ready <- struct{}{}:
	default: // there is a token already
	}
}

// cause notes when the change behind a slice happened.
func (f *feed) cause(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.causes = append(f.mu.causes, t)
}

// intake is what has come in since the last take.
type intake struct {
	changes []func(*Model)
	causes  []time.Time
	counts  map[string]int
}

// take returns what is pending; ok is false until every kind has come.
func (f *feed) take() (in intake, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.synced) < len(kinds) {
		return intake{}, false
	}
	in = intake{f.mu.pending, f.mu.causes, f.mu.counts}
	f.mu.pending, f.mu.causes, f.mu.counts = nil, nil, map[string]int{}
	return in, true
}

// waiting returns since when something is pending; zero if nothing is.
func (f *feed) waiting() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.pending) == 0 {
		return time.Time{}
	}
	return f.mu.since
}

// follow starts the watches that fill the feed.
func (f *feed) follow(g *task.Group, t client.Transport, node string) {
	g.Go("watch services", source[*corev1.Service]{
		kind: "service", from: client.Cached(t, core.Services, ""),
		replace: (*Model).replaceServices, change: changeService,
	}.into(f))
	g.Go("watch endpoint slices", source[*discoveryv1.EndpointSlice]{
		kind: "endpointslice", from: client.Cached(t, discovery.EndpointSlices, ""),
		replace: (*Model).replaceSlices, change: changeSlice,
	}.into(f))
	g.Go("watch pods", source[*corev1.Pod]{
		kind: "pod", from: client.Cached(t, core.Pods, "spec.nodeName="+node),
		narrow:  cache.CursorOptions{Index: "spec.nodeName", Value: node},
		replace: (*Model).replacePods, change: changePod,
	}.into(f))
	g.Go("watch node", source[*corev1.Node]{
		kind: "node", from: client.Cached(t, core.Nodes, "metadata.name="+node),
		replace: func(m *Model, all []*corev1.Node) {
			for _, n := range all {
				changeNode(m, cache.Event{Type: cache.Added, Item: &cache.Item{Object: n}})
			}
		},
		change: changeNode,
	}.into(f))
}

func changeService(m *Model, e cache.Event) {
	if s := e.Item.Object.(*corev1.Service); e.Type == cache.Deleted {
		m.DeleteService(s.Namespace, s.Name)
	} else {
		m.SetService(s)
	}
}

func changeSlice(m *Model, e cache.Event) {
	s := e.Item.Object.(*discoveryv1.EndpointSlice)
	if e.Prev != nil {
		old := e.Prev.Object.(*discoveryv1.EndpointSlice)
		if old.Labels[discoveryv1.LabelServiceName] != s.Labels[discoveryv1.LabelServiceName] {
			m.DeleteSlice(old)
		}
	}
	if e.Type == cache.Deleted {
		m.DeleteSlice(s)
	} else {
		m.SetSlice(s)
	}
}

func changePod(m *Model, e cache.Event) {
	if p := e.Item.Object.(*corev1.Pod); e.Type == cache.Deleted {
		m.DeletePod(p.Namespace, p.Name)
	} else {
		m.SetPod(p)
	}
}

// changeNode takes in this node. When it is deleted it still has to serve what
// runs on it.
func changeNode(m *Model, e cache.Event) {
	if n := e.Item.Object.(*corev1.Node); n.Name == m.cfg.NodeName && e.Type != cache.Deleted {
		m.SetNode(n)
	}
}

// source is one kind of object that the model is fed with: at first, and after
// a break, all there are, and from then on each change.
type source[T resource.Object] struct {
	kind    string
	from    client.Reader[T]
	narrow  cache.CursorOptions
	replace func(*Model, []T)
	change  func(*Model, cache.Event)
}

// into returns the task that puts the source into the feed.
func (s source[T]) into(f *feed) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			// ErrTooOld: there was more to see than the cache remembers.
			if err := s.once(ctx, f); !errors.Is(err, cache.ErrTooOld) {
				return err
			}
		}
	}
}

func (s source[T]) once(ctx context.Context, f *feed) error {
	o, whole := s.narrow, true
	o.FromNow = true
	return s.from.Watch(ctx, o, func(events []cache.Event) error {
		if !whole {
			f.noteCauses(events)
			f.put(s.kind, false, len(events), func(m *Model) {
				for _, e := range events {
					s.change(m, e)
				}
			})
			return nil
		}
		whole = false
		all := make([]T, len(events))
		for i, e := range events {
			all[i] = e.Item.Object.(T)
		}
		f.put(s.kind, true, len(events), func(m *Model) { s.replace(m, all) })
		return nil
	})
}

// noteCauses reads from slices when the change behind them happened.
func (f *feed) noteCauses(events []cache.Event) {
	for _, e := range events {
		s, ok := e.Item.Object.(*discoveryv1.EndpointSlice)
		if !ok || e.Type == cache.Deleted {
			continue
		}
		if t, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
			f.cause(t)
		}
	}
}

// The replace methods take in all objects of a kind; others are gone.

func (m *Model) replaceServices(all []*corev1.Service) {
	gone := map[ownerKey]bool{}
	for key, o := range m.owners {
		gone[key] = o.svc != nil
	}
	for _, s := range all {
		m.SetService(s)
		delete(gone, serviceKey(s.Namespace, s.Name))
	}
	for key, yes := range gone {
		if yes {
			m.DeleteService(key.Namespace, key.Name)
		}
	}
}

func (m *Model) replaceSlices(all []*discoveryv1.EndpointSlice) {
	var old []*discoveryv1.EndpointSlice
	for _, o := range m.owners {
		old = slices.AppendSeq(old, maps.Values(o.slices))
	}
	for _, s := range old {
		m.DeleteSlice(s)
	}
	for _, s := range all {
		m.SetSlice(s)
	}
}

func (m *Model) replacePods(all []*corev1.Pod) {
	gone := map[ownerKey]bool{}
	for key, o := range m.owners {
		gone[key] = o.pod != nil
	}
	for _, p := range all {
		m.SetPod(p)
		delete(gone, podKey(p.Namespace, p.Name))
	}
	for key, yes := range gone {
		if yes {
			m.DeletePod(key.Namespace, key.Name)
		}
	}
}
