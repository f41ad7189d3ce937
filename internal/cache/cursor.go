package cache

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// CursorOptions say what a cursor follows.
type CursorOptions struct {
	// After is the revision the follower has seen already. FromNow asks for the
	// present state first, as Added events.
	After   int64
	FromNow bool
	// Namespace narrows to one namespace; Index and Value to the objects that
	// have the value in that declared index (K3).
	Namespace    string
	Index, Value string
}

// Cursor follows the changes of a cache. It belongs to one goroutine and must
// be closed.
type Cursor struct {
	c     *Cache
	o     CursorOptions
	ready chan struct{} // holds one token: there may be something to read

	initial []Event
	rev     int64 // everything up to here has been delivered

	// Guarded by the cache's lock.
	pending bool   // events from next on have not been read
	next    uint64 // number of the first event that may matter
}

// Cursor starts to follow the cache (K2). It fails with ErrTooOld if the
// changes after o.After are not in the log any more. The cache must be synced.
func (c *Cache) Cursor(o CursorOptions) (*Cursor, error) {
	cu := &Cursor{c: c, o: o, ready: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.FromNow {
		cu.rev = max(c.mu.log.last, c.Progress.Rev())
		cu.next = c.mu.log.next
		cu.initial = c.initialLocked(o)
	} else {
		next, ok := c.mu.log.after(o.After)
		if !ok {
			return nil, ErrTooOld
		}
		cu.rev, cu.next, cu.pending = o.After, next, next < c.mu.log.next
	}
	if o.Index != "" {
		iv := indexValue{o.Index, o.Value}
		if c.mu.keyed[iv] == nil {
			c.mu.keyed[iv] = map[*Cursor]struct{}{}
		}
		c.mu.keyed[iv][cu] = struct{}{}
	} else {
		c.mu.cursors[cu] = struct{}{}
	}
	if cu.pending || len(cu.initial) > 0 {
		cu.ready <- struct{}{}
	}
	return cu, nil
}

func (c *Cache) initialLocked(o CursorOptions) []Event {
	var events []Event
	add := func(it *Item) bool {
		events = append(events, Event{Type: Added, Item: it})
		return true
	}
	if o.Index != "" {
		for _, it := range c.mu.index[o.Index][o.Value] {
			if o.Namespace == "" || it.Namespace() == o.Namespace {
				add(it)
			}
		}
		slices.SortFunc(events, func(a, b Event) int { return strings.Compare(a.Item.Key, b.Item.Key) })
		return events
	}
	(&Snapshot{tree: c.mu.tree}).Scan(o.Namespace, "", add)
	return events
}

// Close ends the cursor; it may be called more than once.
func (cu *Cursor) Close() {
	cu.c.mu.Lock()
	defer cu.c.mu.Unlock()
	delete(cu.c.mu.cursors, cu)
	iv := indexValue{cu.o.Index, cu.o.Value}
	delete(cu.c.mu.keyed[iv], cu)
	if len(cu.c.mu.keyed[iv]) == 0 {
		delete(cu.c.mu.keyed, iv)
	}
}

// Ready yields a token when Next may have something new.
func (cu *Cursor) Ready() <-chan struct{} { return cu.ready }

// Rev is the revision up to which everything has been delivered by Next.
func (cu *Cursor) Rev() int64 { return cu.rev }

// Next returns what has happened since the last call, and never blocks. An
// empty result means nothing relevant has. After ErrTooOld the cursor is of no
// more use.
func (cu *Cursor) Next() ([]Event, error) {
	if cu.initial != nil {
		events := cu.initial
		cu.initial = nil
		cu.wakeIfPending()
		return events, nil
	}
	cu.c.mu.RLock()
	defer cu.c.mu.RUnlock()
	log := &cu.c.mu.log
	rev := max(log.last, cu.c.Progress.Rev())
	if !cu.pending {
		cu.rev = max(cu.rev, rev)
		return nil, nil
	}
	if cu.next < log.oldest {
		return nil, ErrTooOld
	}
	var events []Event
	for seq := cu.next; seq < log.next; seq++ {
		if e, ok := cu.view(log.at(seq)); ok {
			events = append(events, e)
		}
	}
	cu.pending, cu.next = false, log.next
	cu.rev = rev
	return events, nil
}

func (cu *Cursor) wakeIfPending() {
	cu.c.mu.RLock()
	defer cu.c.mu.RUnlock()
	if cu.pending {
		cu.token()
	}
}

// wakeLocked notes that event seq matters to the cursor.
func (cu *Cursor) wakeLocked(seq uint64) {
	if !cu.pending {
		cu.pending, cu.next = true, seq
	}
	cu.token()
}

func (cu *Cursor) token() {
	select {
	case cu.ready <- struct{}{}:
	default: // there is one already
	}
}

// view is the event as the cursor's narrowed follower sees it (K3).
func (cu *Cursor) view(e *Event) (Event, bool) {
	if e.Rev() <= cu.o.After { // the cache was behind the follower
		return Event{}, false
	}
	if cu.o.Namespace != "" && e.Item.Namespace() != cu.o.Namespace {
		return Event{}, false
	}
	if cu.o.Index == "" {
		return *e, true
	}
	has := func(it *Item) bool {
		return it != nil && slices.Contains(cu.c.Def.Index[cu.o.Index](it.Object), cu.o.Value)
	}
	return Narrow(*e, has)
}

// Narrow returns the event as seen by a follower of only the objects for which
// has is true (has must take nil): an object that begins to match is Added,
// one that ceases to is Deleted, at the revision of the change. ok is false if the
// follower sees nothing.
func Narrow(e Event, has func(*Item) bool) (_ Event, ok bool) {
	before := has(e.Prev)
	after := e.Type != Deleted && has(e.Item)
	switch {
	case before && after:
		e.Type = Modified
	case after:
		e.Type = Added
	case before:
		e.Type = Deleted
	default:
		return Event{}, false
	}
	return e, true
}

// Watch calls fn with each batch of events until ctx ends or fn fails. With
// FromNow the first batch is the present state, even if that is empty.
func (c *Cache) Watch(ctx context.Context, o CursorOptions, fn func([]Event) error) error {
	select {
	case <-c.synced:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	cu, err := c.Cursor(o)
	if err != nil {
		return err
	}
	defer cu.Close()
	if o.FromNow && len(cu.initial) == 0 {
		if err := fn(nil); err != nil {
			return err
		}
	}
	for {
		select {
		case <-cu.Ready():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		events, err := cu.Next()
		if err != nil {
			return err
		}
		if len(events) == 0 {
			continue
		}
		if err := fn(events); err != nil {
			return err
		}
	}
}

// Matching is a has function for Narrow: objects whose labels match.
func Matching(sel labels.Selector) func(*Item) bool {
	return func(it *Item) bool {
		return it != nil && sel.Matches(labels.Set(it.Object.GetLabels()))
	}
}
