package daemonset

import (
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/cache"
)

// A failed pod is replaced after a wait that grows from firstWait, twice as long
// each time, to lastWait. After a while without failures it begins anew.
const (
	firstWait = time.Second
	lastWait  = 15 * time.Minute
)

// backoff knows how long failed pods are left alone. The zero value works; it may
// be used concurrently.
type backoff struct {
	mu struct {
		sync.Mutex
		of map[string]*failures // by the key of the DaemonSet
	}
}

// failures are those of one DaemonSet; one that is changed begins anew.
type failures struct {
	set        types.UID
	generation int64
	nodes      map[string]failing
}

// failing is a node whose pods fail.
type failing struct {
	wait time.Duration
	last time.Time // when one was removed
}

// ofLocked are the failures of a set as it is now; nil if there are none.
func (b *backoff) ofLocked(ds *appsv1.DaemonSet) *failures {
	f := b.mu.of[cache.Key(ds.Namespace, ds.Name)]
	if f == nil || f.set != ds.UID || f.generation != ds.Generation {
		return nil
	}
	return f
}

// held is how much longer the failed pod on a node is to be left alone.
func (b *backoff) held(ds *appsv1.DaemonSet, node string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.ofLocked(ds)
	if f == nil {
		return 0
	}
	at := f.nodes[node]
	return max(0, at.last.Add(at.wait).Sub(now))
}

// removed notes that the failed pod on a node was removed.
func (b *backoff) removed(ds *appsv1.DaemonSet, node string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.ofLocked(ds)
	if f == nil {
		f = &failures{set: ds.UID, generation: ds.Generation, nodes: map[string]failing{}}
		if b.mu.of == nil {
			b.mu.of = map[string]*failures{}
		}
		b.mu.of[cache.Key(ds.Namespace, ds.Name)] = f
	}
	for name, at := range f.nodes {
		if now.Sub(at.last) > 2*lastWait {
			delete(f.nodes, name)
		}
	}
	f.nodes[node] = failing{wait: min(max(firstWait, 2*f.nodes[node].wait), lastWait), last: now}
}

// forget drops what is known of a set that is gone.
func (b *backoff) forget(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.of, key)
}
