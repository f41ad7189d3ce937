package cache

import (
	"cmp"
	"slices"
)

// Change is what the feeder tells: the object now at Item.Key, or with Delete
// that it is gone (Item is then the last state, at the revision of the deletion).
type Change struct {
	Item   *Item
	Delete bool
}

// Replace sets the whole state at once: the first state, or the state after
// the feed had to list again. Cursors see the difference; new ones can only
// start at rev, since what happened before it is not known in full. The caller
// advances Progress afterwards. rev is the revision of the state.
func (c *Cache) Replace(items []*Item, rev int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaceLocked(items, rev)
	if !c.mu.heard {
		c.mu.heard = true
		close(c.heard)
	}
}

// Recall sets the whole state as an earlier process knew it, for as long as the feed cannot
// tell what has become of it. It is Replace but for [Cache.Heard].
func (c *Cache) Recall(items []*Item, rev int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaceLocked(items, rev)
}

func (c *Cache) replaceLocked(items []*Item, rev int64) {
	c.mu.loads++
	c.applyLocked(c.differenceLocked(items, rev), c.mu.synced)
	c.mu.log.begin(rev)
	c.mu.log.last = max(c.mu.log.last, rev)
	if !c.mu.synced {
		c.mu.synced = true
		close(c.synced)
		for f := range c.mu.followers {
			f.token()
		}
	}
}

// differenceLocked is what has happened since the present state, in the order
// of revisions.
func (c *Cache) differenceLocked(items []*Item, rev int64) []Change {
	stays := make(map[string]bool, len(items))
	var changes []Change
	for _, it := range items {
		stays[it.Key] = true
		old, ok := c.mu.tree.Get(entry{key: it.Key})
		if ok && old.it.Rev == it.Rev {
			continue
		}
		if ok && old.it.Object.GetUID() != it.Object.GetUID() { // deleted and made again
			changes = append(changes, Change{Item: old.it.gone(it.Rev), Delete: true})
		}
		changes = append(changes, Change{Item: it})
	}
	c.mu.tree.Ascend(func(e entry) bool {
		if !stays[e.key] {
			changes = append(changes, Change{Item: e.it.gone(rev), Delete: true})
		}
		return true
	})
	slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(a.Item.Rev, b.Item.Rev) })
	return changes
}

// Apply takes in changes, which are in revision order (K1). The caller advances
// Progress when all caches of the feed have taken in theirs.
func (c *Cache) Apply(changes []Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applyLocked(changes, true)
}

func (c *Cache) applyLocked(changes []Change, log bool) {
	for _, ch := range changes {
		e := Event{Item: ch.Item}
		if ch.Delete {
			old, ok := c.mu.tree.Delete(entry{key: ch.Item.Key})
			if !ok {
				continue
			}
			e.Type, e.Prev = Deleted, old.it
			c.unindexLocked(old.it)
			c.labelLocked(old.it, nil)
		} else {
			old, ok := c.mu.tree.ReplaceOrInsert(entry{ch.Item.Key, ch.Item})
			e.Type = Added
			if ok {
				e.Type, e.Prev = Modified, old.it
				c.unindexLocked(old.it)
			}
			c.indexLocked(ch.Item)
			c.labelLocked(old.it, ch.Item)
		}
		if log {
			objects := c.mu.tree.Len()
			c.missBelowLocked(c.mu.log.kept(objects))
			seq := c.mu.log.add(e, objects)
			c.notifyLocked(&e, seq)
		}
	}
}

func (c *Cache) labelLocked(old, now *Item) {
	if c.mu.labels != nil {
		c.mu.labels.replace(old, now)
	}
}

func (c *Cache) indexLocked(it *Item) {
	for name, f := range c.Def.Index {
		for _, v := range f(it.Object) {
			byKey := c.mu.index[name][v]
			if byKey == nil {
				byKey = map[string]*Item{}
				c.mu.index[name][v] = byKey
			}
			byKey[it.Key] = it
		}
	}
}

func (c *Cache) unindexLocked(it *Item) {
	for name, f := range c.Def.Index {
		for _, v := range f(it.Object) {
			byKey := c.mu.index[name][v]
			delete(byKey, it.Key)
			if len(byKey) == 0 {
				delete(c.mu.index[name], v)
			}
		}
	}
}

func (c *Cache) notifyLocked(e *Event, seq uint64) {
	minor := e.Type == Modified && c.Def.Minor != nil && c.Def.Minor(e.Prev.Object, e.Item.Object)
	for t := range c.mu.tails {
		t.wakeLocked(seq, minor)
	}
	if len(c.mu.keyed) == 0 {
		return
	}
	for name, f := range c.Def.Index {
		for _, v := range f(e.Item.Object) {
			for t := range c.mu.keyed[indexValue{name, v}] {
				t.wakeLocked(seq, minor)
			}
		}
		if e.Prev == nil {
			continue
		}
		for _, v := range f(e.Prev.Object) {
			for t := range c.mu.keyed[indexValue{name, v}] {
				t.wakeLocked(seq, minor)
			}
		}
	}
}
