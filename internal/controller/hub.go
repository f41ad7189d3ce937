package controller

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/task"
)

// hub feeds the watches of all controllers of a process: each cache has one
// follower, however many watch it.
type hub struct {
	g   *task.Group
	log *slog.Logger
	mu  struct {
		sync.Mutex
		feeds      map[*cache.Cache]*feed // of the caches that somebody watches
		selections map[keptFor]*kept      // that somebody watches by
	}
}

// feed is what one follower hands on.
type feed struct {
	cache  *cache.Cache
	joined chan struct{} // holds a token while somebody may wait for the present state
	stop   context.CancelFunc

	// Guarded by the hub's lock.
	all   []*member
	fresh []*member // of all, those that have not got the present state
}

// member is one watch of one controller.
type member struct {
	told chan struct{} // closed when it has got the present state
	mu   struct {
		sync.Mutex
		take taker // nil: it has left
	}
}

// taker is told of changes. first says that one is of the present state.
type taker func(d cache.Delta, first bool)

// newHub returns a hub whose followers run in g.
func newHub(g *task.Group, log *slog.Logger) *hub {
	h := &hub{g: g, log: log}
	h.mu.feeds = map[*cache.Cache]*feed{}
	h.mu.selections = map[keptFor]*kept{}
	return h
}

// join has take called for the present state of a cache, and then for every
// change, by one goroutine, until leave has returned. take must be quick. told is closed after the present state.
func (h *hub) join(c *cache.Cache, take taker) (told <-chan struct{}, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.joinLocked(c, take)
}

func (h *hub) joinLocked(c *cache.Cache, take taker) (told <-chan struct{}, leave func()) {
	m := &member{told: make(chan struct{})}
	m.mu.take = take
	f := h.mu.feeds[c]
	if f == nil {
		ctx, stop := context.WithCancel(h.g.Context())
		f = &feed{cache: c, joined: make(chan struct{}, 1), stop: stop}
		h.mu.feeds[c] = f
		h.g.Go("watch "+c.Def.String(), func(context.Context) error {
			defer stop()
			return h.run(ctx, f)
		})
	}
	f.all, f.fresh = append(f.all, m), append(f.fresh, m)
	select {
	case f.joined <- struct{}{}:
	default: // there is one already
	}
	return m.told, func() { h.leave(f, m) }
}

func (h *hub) leave(f *feed, m *member) {
	h.mu.Lock()
	f.all, f.fresh = without(f.all, m), without(f.fresh, m)
	if len(f.all) == 0 && h.mu.feeds[f.cache] == f {
		f.stop()
		delete(h.mu.feeds, f.cache)
	}
	h.mu.Unlock()
	m.mu.Lock() // waits for a call that is under way
	defer m.mu.Unlock()
	m.mu.take = nil
}

// without is the list without m; the old one stays as it is.
func without(list []*member, m *member) []*member {
	return slices.DeleteFunc(slices.Clone(list), func(x *member) bool { return x == m })
}

// members are those that have the present state, and those that are to get it now.
func (h *hub) members(f *feed) (settled, fresh []*member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range f.all {
		if !slices.Contains(f.fresh, m) {
			settled = append(settled, m)
		}
	}
	fresh, f.fresh = f.fresh, nil
	return settled, fresh
}

// run follows a cache for its members. Who joins later gets the state there is
// then: some of what follows may be in there already, but nothing is missing.
func (h *hub) run(ctx context.Context, f *feed) error {
	select {
	case <-f.cache.Synced():
	case <-ctx.Done():
		return nil
	}
	follower := f.cache.Follow(cache.FollowOptions{})
	defer follower.Close()
	for first := true; ; first = false {
		select {
		case <-follower.Ready():
		case <-f.joined:
		case <-ctx.Done():
			return nil
		}
		settled, fresh := h.members(f)
		deltas := follower.Next()
		handOn(deltas, settled, false)
		if len(fresh) == 0 {
			continue
		}
		if !first {
			deltas = nil
			for _, it := range f.cache.List("", nil) {
				deltas = append(deltas, cache.Delta{Now: it})
			}
		}
		handOn(deltas, fresh, true)
		for _, m := range fresh {
			close(m.told)
		}
	}
}

func handOn(deltas []cache.Delta, to []*member, first bool) {
	for _, d := range deltas {
		for _, m := range to {
			m.tell(d, first)
		}
	}
}

func (m *member) tell(d cache.Delta, first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.take != nil {
		m.mu.take(d, first)
	}
}
