package cache

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
)

// FollowOptions narrow what is followed: to one namespace (empty: all), and to
// the objects that have the value in the declared index (K3; no index: all).
type FollowOptions struct {
	Namespace    string
	Index, Value string
}

// Delta is what has become of one object: Prev is the state that the follower
// was told before (nil: none), Now the one that came after it (nil: it is gone,
// or no longer among what is followed). At least one of them is there.
type Delta struct{ Prev, Now *Item }

// Last is the last state that is known: Now, or of what is gone Prev.
func (d Delta) Last() *Item { return cmp.Or(d.Now, d.Prev) }

// Follower keeps who reads it up with a cache, however late he comes (K5). It
// belongs to one goroutine and must be closed.
//
// As long as the log has what the follower has not read, it is a place in there
// and costs nothing. What leaves the log unread is noted with the follower: for
// each object that has changed, the state that was told before.
type Follower struct {
	tail

	// Guarded by the cache's lock.
	begun  bool           // the present state has been read
	behind map[string]lag // objects whose changes have left the log unread, by key
}

// lag is what a follower has missed of one object.
type lag struct {
	known *Item // the state it was told before; nil: none
	rev   int64 // of the last change
}

// Follow starts to follow the cache: the first read is the present state.
func (c *Cache) Follow(o FollowOptions) *Follower {
	f := &Follower{tail: newTail(c, o)}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.joinLocked()
	c.mu.followers[f] = struct{}{}
	if c.mu.synced {
		f.token()
	}
	return f
}

// Close ends the follower; it may be called more than once.
func (f *Follower) Close() {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.leaveLocked()
	delete(f.c.mu.followers, f)
}

// Next returns what has happened since the last call, at first the present
// state, and never blocks. Changes come in the order of revisions; of an object
// that changed more than once while the follower was far behind, only the newest
// state is shown. One that was deleted and made again comes as two deltas.
func (f *Follower) Next() []Delta {
	f.c.mu.RLock() // what is guarded is written by the feeder, who has the whole lock, and here
	defer f.c.mu.RUnlock()
	switch {
	case !f.c.mu.synced:
		return nil
	case !f.begun:
		return f.beginLocked()
	case len(f.behind) > 0:
		f.missLocked()
		return f.catchUpLocked()
	case !f.pending:
		return nil
	}
	var deltas []Delta
	for e := range f.unreadLocked() {
		d := Delta{Prev: e.known()}
		if e.Type != Deleted {
			d.Now = e.Item
		}
		deltas = append(deltas, d)
	}
	return deltas
}

func (f *Follower) beginLocked() []Delta {
	f.begun, f.pending = true, false
	var deltas []Delta
	f.c.scanLocked(f.o, func(it *Item) { deltas = append(deltas, Delta{Now: it}) })
	return deltas
}

// unreadLocked yields the events of the log that were not read, as the follower
// sees them. They are read then.
func (f *Follower) unreadLocked() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		log := &f.c.mu.log
		for seq := f.next; f.pending && seq < log.next; seq++ {
			if e, ok := f.view(log.at(seq)); ok && !yield(e) {
				break
			}
		}
		f.pending = false
	}
}

// known is the state that who follows was told before the event.
func (e *Event) known() *Item {
	if e.Type == Added { // Prev may be what a narrowed follower did not see
		return nil
	}
	return e.Prev
}

// missLocked notes what the log has for the follower, instead of reading it.
func (f *Follower) missLocked() {
	if f.behind == nil {
		f.behind = map[string]lag{}
	}
	for e := range f.unreadLocked() {
		key := e.Item.Key
		l, missed := f.behind[key]
		if !missed {
			l.known = e.known()
		} else if l.known == nil && e.Type == Deleted { // it came and went
			delete(f.behind, key)
			continue
		}
		l.rev = e.Rev()
		f.behind[key] = l
	}
}

// catchUpLocked shows the newest states of what was missed.
func (f *Follower) catchUpLocked() []Delta {
	keys := make([]string, 0, len(f.behind))
	for key := range f.behind {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(f.behind[a].rev, f.behind[b].rev), strings.Compare(a, b))
	})
	deltas := make([]Delta, 0, len(keys))
	for _, key := range keys {
		known := f.behind[key].known
		now, _ := f.c.mu.tree.Get(entry{key: key})
		if !f.has(now.it) {
			now.it = nil
		}
		if known != nil && now.it != nil && known.Object.GetUID() != now.it.Object.GetUID() {
			deltas = append(deltas, Delta{Prev: known})
			known = nil
		}
		deltas = append(deltas, Delta{known, now.it})
	}
	f.behind = nil
	return deltas
}

// missBelowLocked has the followers that have not read the events below seq note
// what they miss: they are about to leave the log. Who is behind misses all that
// the log has, so that this happens once in as many events as the log holds.
func (c *Cache) missBelowLocked(seq uint64) {
	if c.mu.unread >= seq {
		return
	}
	c.mu.unread = c.mu.log.next
	for f := range c.mu.followers {
		if f.pending && f.begun && f.next < seq {
			f.missLocked()
		}
		if f.pending && f.begun {
			c.mu.unread = min(c.mu.unread, f.next)
		}
	}
}

// Each calls fn with each batch that a follower reads, until ctx ends or fn fails. The
// first call is with the present state, even if that is empty.
func (c *Cache) Each(ctx context.Context, o FollowOptions, fn func([]Delta) error) error {
	select {
	case <-c.synced:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f := c.Follow(o)
	defer f.Close()
	for first := true; ; first = false {
		select {
		case <-f.Ready():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		deltas := f.Next()
		if len(deltas) == 0 && !first {
			continue
		}
		if err := fn(deltas); err != nil {
			return err
		}
	}
}
