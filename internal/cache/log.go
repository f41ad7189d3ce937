package cache

import (
	"slices"
	"sort"
)

// logBegin is the number of the first event of a log: there is room for earlier ones that are recollected.
const logBegin = 1 << 32

// eventLog holds the last events, numbered from logBegin on.
type eventLog struct {
	size   int // how many events it holds at most, unless there are many objects
	events []Event
	oldest uint64      // number of events[0]
	next   uint64      // number of the next event
	old    uint64      // events below are dropped by the next trim
	first  int64       // a cursor can start at this revision or later
	last   int64       // revision of the last event, or of the first state
	past   []*Snapshot // states that were asked for, from first on, by revision
}

// add takes in an event of a resource with so many objects.
func (l *eventLog) add(e Event, objects int) uint64 {
	l.last = e.Item.Rev
	if n := l.kept(objects) - l.oldest; n > 0 {
		l.begin(max(l.first, l.events[n-1].Item.Rev))
		clear(l.events[:n])
		l.events = l.events[n:] // growth moves the rest to a new array now and then
		l.oldest += n
	}
	l.events = append(l.events, e)
	l.next++
	return l.next - 1
}

// kept is the number of the first event that the next add leaves in the log.
func (l *eventLog) kept(objects int) uint64 {
	return l.oldest + uint64(max(0, len(l.events)+1-l.room(objects)))
}

// room is how many events the log of a resource with so many objects holds at most.
func (l *eventLog) room(objects int) int {
	if many := objects / logShare; many > logSize {
		return many
	}
	return l.size
}

func (l *eventLog) at(seq uint64) *Event { return &l.events[seq-l.oldest] }

// after is the number of the first event with a revision above rev.
func (l *eventLog) after(rev int64) (uint64, bool) {
	if rev < l.first {
		return 0, false
	}
	n := sort.Search(len(l.events), func(i int) bool { return l.events[i].Rev() > rev })
	return l.oldest + uint64(n), true
}

// trim drops the events that were there at the last trim.
func (l *eventLog) trim() {
	if l.old > l.oldest {
		n := l.old - l.oldest
		l.begin(max(l.first, l.events[n-1].Item.Rev))
		l.events = slices.Clone(l.events[n:])
		l.oldest = l.old
	}
	l.old = l.next
}

// LogBegin is the revision after which all changes are in the log. ok is false if earlier ones cannot be put before
// them: the cache has had to list in between.
func (c *Cache) LogBegin() (rev int64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.log.first, c.mu.log.whole()
}

// whole says that the log holds nothing but the changes after first.
func (l *eventLog) whole() bool { return len(l.events) == 0 || l.events[0].Rev() > l.first }

// Recollect puts changes before those of the log: all those after a revision, up to where the log began, in
// revision order. It reports whether a cursor can start there now. They are trimmed as others are.
func (c *Cache) Recollect(events []Event, after, upTo int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.mu.log
	switch {
	case after >= l.first:
		return true // somebody was faster
	case upTo != l.first || !l.whole() || uint64(len(events)) > l.oldest:
		return false
	}
	l.events = slices.Concat(events, l.events)
	l.oldest -= uint64(len(events))
	l.old, l.first = l.oldest, after
	return true
}

// Trim forgets the changes that were known when it was called the last time:
// they hold states of objects in memory that are gone otherwise. The feeder
// calls it every few minutes. Cursors that have still not read them fail with
// ErrTooOld; followers keep what they have to.
func (c *Cache) Trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missBelowLocked(c.mu.log.old)
	c.mu.log.trim()
}
