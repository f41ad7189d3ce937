package quota

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
)

// turns are those of the namespaces that are being written to, or were so lately
// that the cache does not show it yet.
type turns struct {
	mu struct {
		sync.Mutex
		byNamespace map[string]*turn
	}
}

// turn is what the writes of one namespace that are charged wait for (Q3). Who has
// it holds no lock: a write that waits may be given up.
type turn struct {
	namespace string
	token     chan struct{} // holds the token while nobody has the turn
	users     int           // who have the turn or wait for it; guarded by turns
	// newest are the quotas, by name, as this process has written them last. They
	// belong to who has the turn.
	newest map[string]*corev1.ResourceQuota
}

// take waits for the turn of a namespace; leave gives it back.
func (ts *turns) take(ctx context.Context, namespace string) (*turn, error) {
	ts.mu.Lock()
	t := ts.mu.byNamespace[namespace]
	if t == nil {
		t = &turn{namespace: namespace, token: make(chan struct{}, 1), newest: map[string]*corev1.ResourceQuota{}}
		t.token <- struct{}{}
		ts.mu.byNamespace[namespace] = t
	}
	t.users++
	ts.mu.Unlock()
	select {
	case <-t.token:
		return t, nil
	case <-ctx.Done():
		ts.mu.Lock()
		defer ts.mu.Unlock()
		t.users--
		return nil, context.Cause(ctx)
	}
}

// leave lets the next write go on. What was noted is forgotten when the cache shows
// it and nobody came meanwhile.
func (p *plugin) leave(t *turn) {
	var rev int64
	for _, q := range t.newest {
		rev = max(rev, revision(q))
	}
	p.turns.mu.Lock()
	t.users--
	last := t.users == 0
	p.turns.mu.Unlock()
	t.token <- struct{}{}
	if last {
		p.quotas.Cache.Progress.Notify(rev, func() { p.turns.forget(t) })
	}
}

func (ts *turns) forget(t *turn) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.users == 0 && ts.mu.byNamespace[t.namespace] == t {
		delete(ts.mu.byNamespace, t.namespace)
	}
}

// note remembers a quota as the write of who has the turn has left it.
func (t *turn) note(obj resource.Object) {
	q := obj.(*corev1.ResourceQuota)
	t.newest[q.Name] = q
}

// newest are the quotas of the turn's namespace in the order of their names, as
// they are in the cache or, if that is newer, as this process has written them.
func (p *plugin) newest(t *turn) []*corev1.ResourceQuota {
	items := p.quotas.Cache.ByIndex(core.IndexNamespace, t.namespace)
	list := make([]*corev1.ResourceQuota, len(items))
	for i, it := range items {
		list[i] = it.Object.(*corev1.ResourceQuota)
		if own := t.newest[list[i].Name]; own != nil && revision(own) > it.Rev {
			list[i] = own
		}
	}
	slices.SortFunc(list, func(a, b *corev1.ResourceQuota) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// revision is that of an object that was stored.
func revision(q *corev1.ResourceQuota) int64 {
	rev, _ := strconv.ParseInt(q.ResourceVersion, 10, 64)
	return rev
}
