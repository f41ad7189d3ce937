package cache

import (
	"slices"
	"strings"
)

// tail is a reader's place in the log, and what it is to see of it.
type tail struct {
	c      *Cache
	o      FollowOptions
	ready  chan struct{} // holds one token: there may be something to read
	notify func()        // is called instead, if there is one
	later  func()        // is called instead of notify after minor changes

	// Guarded by the cache's lock.
	pending bool   // events from next on have not been read
	next    uint64 // number of the first event that may matter
}

func newTail(c *Cache, o FollowOptions) tail {
	return tail{c: c, o: o, ready: make(chan struct{}, 1)}
}

// joinLocked has the tail woken by what it may have to see.
func (t *tail) joinLocked() {
	m := &t.c.mu
	if t.o.Index == "" {
		m.tails[t] = struct{}{}
		return
	}
	iv := indexValue{t.o.Index, t.o.Value}
	if m.keyed[iv] == nil {
		m.keyed[iv] = map[*tail]struct{}{}
	}
	m.keyed[iv][t] = struct{}{}
}

// leaveLocked ends what joinLocked began; it may be called more than once.
func (t *tail) leaveLocked() {
	m := &t.c.mu
	delete(m.tails, t)
	iv := indexValue{t.o.Index, t.o.Value}
	delete(m.keyed[iv], t)
	if len(m.keyed[iv]) == 0 {
		delete(m.keyed, iv)
	}
}

// Ready yields a token when Next may have something new.
func (t *tail) Ready() <-chan struct{} { return t.ready }

// wakeLocked notes that event seq may matter, which is of a minor change or not.
func (t *tail) wakeLocked(seq uint64, minor bool) {
	if !t.pending {
		t.pending, t.next = true, seq
	}
	if minor && t.later != nil {
		t.later()
		return
	}
	t.token()
}

func (t *tail) token() {
	if t.notify != nil {
		t.notify()
		return
	}
	select {
	case t.ready <- struct{}{}:
	default: // there is one already
	}
}

// view is the event as the tail's narrowed reader sees it (K3).
func (t *tail) view(e *Event) (Event, bool) {
	if t.o.Namespace != "" && e.Item.Namespace() != t.o.Namespace {
		return Event{}, false
	}
	if t.o.Index == "" {
		return *e, true
	}
	return Narrow(*e, t.has)
}

// has says that the reader sees an object, of whose key it does; nil is none.
func (t *tail) has(it *Item) bool {
	return it != nil && (t.o.Index == "" || slices.Contains(t.c.Def.Index[t.o.Index](it.Object), t.o.Value))
}

// scanLocked calls fn with all objects that o names, in the order of their keys.
func (c *Cache) scanLocked(o FollowOptions, fn func(*Item)) {
	if o.Index == "" {
		(&Snapshot{tree: c.mu.tree}).Scan(o.Namespace, "", func(it *Item) bool { fn(it); return true })
		return
	}
	var items []*Item
	for _, it := range c.mu.index[o.Index][o.Value] {
		if o.Namespace == "" || it.Namespace() == o.Namespace {
			items = append(items, it)
		}
	}
	slices.SortFunc(items, func(a, b *Item) int { return strings.Compare(a.Key, b.Key) })
	for _, it := range items {
		fn(it)
	}
}
