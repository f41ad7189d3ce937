package cache

import (
	"cmp"
	"slices"
)

// pastSize is how many past states a cache keeps ready. One that is not among
// them is made again from the log.
const pastSize = 8

// SnapshotAt returns the state at a revision, or nil if the cache cannot tell:
// the log does not reach back to it, or the cache has not come to it. It costs
// what has changed since, the first time.
func (c *Cache) SnapshotAt(rev int64) *Snapshot {
	s, since := c.past(rev)
	if s == nil || s.kept {
		return s
	}
	for _, e := range slices.Backward(since) {
		if e.Prev == nil {
			s.tree.Delete(entry{key: e.Item.Key})
		} else {
			s.tree.ReplaceOrInsert(entry{e.Prev.Key, e.Prev})
		}
	}
	s.kept = true
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.log.keep(s)
}

// past returns a state that is kept, or else the present one with the changes
// that are to be undone.
func (c *Cache) past(rev int64) (*Snapshot, []Event) {
	c.mu.Lock() // Clone writes to the tree it copies
	defer c.mu.Unlock()
	l := &c.mu.log
	if !c.mu.synced || rev > max(c.Progress.Rev(), l.last) {
		return nil, nil
	}
	if i, ok := l.find(rev); ok {
		return l.past[i], nil
	}
	next, ok := l.after(rev)
	if !ok {
		return nil, nil
	}
	return &Snapshot{Rev: rev, tree: c.mu.tree.Clone()}, slices.Clone(l.events[next-l.oldest:])
}

// find is the place of the state at a revision among those kept.
func (l *eventLog) find(rev int64) (int, bool) {
	return slices.BinarySearchFunc(l.past, rev, func(s *Snapshot, rev int64) int { return cmp.Compare(s.Rev, rev) })
}

// keep keeps a state for as long as the log reaches back to it: the objects that it
// holds on to, the log holds on to anyway. It returns the one that is kept.
func (l *eventLog) keep(s *Snapshot) *Snapshot {
	i, ok := l.find(s.Rev)
	if ok {
		return l.past[i] // another reader was faster
	}
	l.past = slices.Insert(l.past, i, s)
	if len(l.past) > pastSize {
		l.past = slices.Delete(l.past, 0, 1)
	}
	l.begin(l.first)
	return s
}

// begin says that the changes after rev are known in full, and no earlier ones.
func (l *eventLog) begin(rev int64) {
	l.first = rev
	i, _ := l.find(rev)
	l.past = slices.Delete(l.past, 0, i)
}
