package proxy

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/podnet/nft"
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
		causes  causes          // of pending slice changes
		counts  map[string]int  // changes by kind, not counting first states
	}
}

// causes are, by family, when what led to changes of slices happened.
type causes [len(families)][]time.Time

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

// intake is what has come in since the last take.
type intake struct {
	changes []func(*Model)
	causes  causes
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
	f.mu.pending, f.mu.causes, f.mu.counts = nil, causes{}, map[string]int{}
	return in, true
}

// pending is how many changes of a kind are not taken in yet.
func (f *feed) pending(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.counts[kind]
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
func (f *feed) follow(g *task.Group, t client.Transport, node string, seen func([]cache.Delta)) {
	for _, s := range []source{
		{kind: "service", from: t.Cache(core.Services.Def, ""), change: changeService, seen: seen},
		{kind: "endpointslice", from: t.Cache(discovery.EndpointSlices.Def, ""), change: changeSlice},
		{
			kind: "pod", from: t.Cache(core.Pods.Def, "spec.nodeName="+node),
			narrow: cache.FollowOptions{Index: "spec.nodeName", Value: node}, change: changePod,
		},
		{kind: "node", from: t.Cache(core.Nodes.Def, "metadata.name="+node), change: changeNode},
	} {
		g.Go("watch "+s.kind, s.into(f))
	}
}

func changeService(m *Model, d cache.Delta) {
	m.served = max(m.served, d.Last().Rev)
	if s := d.Last().Object.(*corev1.Service); d.Now == nil {
		m.DeleteService(s.Namespace, s.Name)
	} else {
		m.SetService(s)
	}
}

func changeSlice(m *Model, d cache.Delta) {
	s := d.Last().Object.(*discoveryv1.EndpointSlice)
	m.taken = max(m.taken, d.Last().Rev)
	if d.Now == nil {
		m.DeleteSlice(s)
		return
	}
	if d.Prev != nil {
		old := d.Prev.Object.(*discoveryv1.EndpointSlice)
		if old.Labels[discoveryv1.LabelServiceName] != s.Labels[discoveryv1.LabelServiceName] {
			m.DeleteSlice(old)
		}
	}
	m.SetSlice(s)
}

func changePod(m *Model, d cache.Delta) {
	if p := d.Last().Object.(*corev1.Pod); d.Now == nil {
		m.DeletePod(p.Namespace, p.Name)
	} else {
		m.SetPod(p)
	}
}

// changeNode takes in this node. When it is deleted it still has to serve what
// runs on it.
func changeNode(m *Model, d cache.Delta) {
	if n := d.Last().Object.(*corev1.Node); n.Name == m.cfg.NodeName && d.Now != nil {
		m.SetNode(n)
	}
}

// source is one kind of object that the model is fed with: at first all there
// are, and from then on each change.
type source struct {
	kind   string
	from   *cache.Cache
	narrow cache.FollowOptions
	change func(*Model, cache.Delta)
	seen   func([]cache.Delta) // nil: nobody else is told
}

// into returns the task that puts the source into the feed.
func (s source) into(f *feed) func(context.Context) error {
	return func(ctx context.Context) error {
		whole := true
		return s.from.Each(ctx, s.narrow, func(deltas []cache.Delta) error {
			if !whole {
				f.noteCauses(deltas)
			}
			f.put(s.kind, whole, len(deltas), func(m *Model) {
				for _, d := range deltas {
					s.change(m, d)
				}
			})
			whole = false
			if s.seen != nil {
				s.seen(deltas)
			}
			return nil
		})
	}
}

// noteCauses reads from slices when the change behind them happened.
func (f *feed) noteCauses(deltas []cache.Delta) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range deltas {
		if d.Now == nil {
			continue
		}
		s, ok := d.Now.Object.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		family := nft.IPv4
		if s.AddressType == discoveryv1.AddressTypeIPv6 {
			family = nft.IPv6
		}
		if t, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
			f.mu.causes[indexOf(family)] = append(f.mu.causes[indexOf(family)], t)
		}
	}
}
