package cache

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
	tail
	after int64 // what happened up to here is not shown

	initial []Event
	rev     int64 // everything up to here has been delivered
}

// Cursor starts to follow the cache (K2). It fails with ErrTooOld if the
// changes after o.After are not in the log any more. The cache must be synced.
func (c *Cache) Cursor(o CursorOptions) (*Cursor, error) {
	cu := &Cursor{tail: newTail(c, FollowOptions{Namespace: o.Namespace, Index: o.Index, Value: o.Value}), after: o.After}
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.FromNow {
		cu.rev = max(c.mu.log.last, c.Progress.Rev())
		cu.next = c.mu.log.next
		c.scanLocked(cu.o, func(it *Item) { cu.initial = append(cu.initial, Event{Type: Added, Item: it}) })
	} else {
		next, ok := c.mu.log.after(o.After)
		if !ok {
			return nil, ErrTooOld
		}
		cu.rev, cu.next, cu.pending = o.After, next, next < c.mu.log.next
	}
	cu.joinLocked()
	if cu.pending || len(cu.initial) > 0 {
		cu.token()
	}
	return cu, nil
}

// Close ends the cursor; it may be called more than once.
func (cu *Cursor) Close() {
	cu.c.mu.Lock()
	defer cu.c.mu.Unlock()
	cu.leaveLocked()
}

// Notify has notify called, instead of the tokens that Ready yields, whenever Next
// may have something new; it may have already. If that is a minor change (see
// [resource.Caching]), later is called. The cache is locked meanwhile: neither must block, or
// ask the cache.
func (cu *Cursor) Notify(notify, later func()) {
	cu.c.mu.Lock()
	defer cu.c.mu.Unlock()
	cu.notify, cu.later, cu.ready = notify, later, nil
}

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
		e := log.at(seq)
		if e.Rev() <= cu.after { // the cache was behind who follows
			continue
		}
		if e, ok := cu.view(e); ok {
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
