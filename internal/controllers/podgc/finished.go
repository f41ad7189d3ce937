package podgc

import (
	"cmp"
	"container/heap"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/cache"
)

// ended is a finished pod.
type ended struct {
	namespace, name string
	evicted         bool // by its node
	created         time.Time
	index           int // in the heap
}

func newEnded(p *corev1.Pod) *ended {
	return &ended{namespace: p.Namespace, name: p.Name, evicted: p.Status.Reason == "Evicted", created: p.CreationTimestamp.Time}
}

func (e *ended) key() string { return cache.Key(e.namespace, e.name) }

// finished are finished pods, the first to go first: those that a node evicted,
// then the oldest.
type finished struct {
	byKey map[string]*ended
	order []*ended
}

func newFinished() *finished { return &finished{byKey: map[string]*ended{}} }

var _ heap.Interface = (*finished)(nil)

// set takes a pod in, instead of another of its key.
func (f *finished) set(e *ended) {
	f.remove(e.key())
	f.byKey[e.key()] = e
	heap.Push(f, e)
}

func (f *finished) remove(key string) {
	if e := f.byKey[key]; e != nil {
		heap.Remove(f, e.index)
	}
}

// first takes out the first to go.
func (f *finished) first() *ended { return heap.Pop(f).(*ended) }

// Len, Less, Swap, Push and Pop are for package heap.
func (f *finished) Len() int { return len(f.order) }
func (f *finished) Less(i, j int) bool {
	a, b := f.order[i], f.order[j]
	if a.evicted != b.evicted {
		return a.evicted
	}
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name)) < 0
}
func (f *finished) Swap(i, j int) {
	f.order[i], f.order[j] = f.order[j], f.order[i]
	f.order[i].index, f.order[j].index = i, j
}
func (f *finished) Push(x any) {
	e := x.(*ended)
	e.index = len(f.order)
	f.order = append(f.order, e)
}
func (f *finished) Pop() any {
	last := len(f.order) - 1
	e := f.order[last]
	f.order[last] = nil
	f.order = f.order[:last]
	delete(f.byKey, e.key())
	return e
}
