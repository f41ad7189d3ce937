package cache

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/google/btree"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/resource"
)

// ErrTooOld says that changes between the revision asked for and now are no
// longer in the log: list again.
var ErrTooOld = errors.New("too old resource version")

// logSize is how many recent changes a cache remembers at most for cursors to
// resume at, and of a resource with many objects one for each logShare of them: a
// burst is as large as what there is. Each keeps the state before it in memory, which
// of a pod is 2 KB.
const logSize, logShare = 4096, 4

// Cache is all objects of one resource. Readers, cursors and followers may be used
// concurrently with each other and with the one feeder, which calls Replace
// once and then Apply. If it cannot, it may call Recall before.
type Cache struct {
	Def      *resource.Def
	Progress *Progress

	synced chan struct{} // closed by the first Replace or Recall
	heard  chan struct{} // closed by the first Replace

	mu struct {
		sync.RWMutex
		tree      *btree.BTreeG[entry]
		index     map[string]map[string]map[string]*Item // index name, value, key
		labels    *labelIndex                            // nil: there is none
		log       eventLog
		tails     map[*tail]struct{} // of all readers without an index
		keyed     map[indexValue]map[*tail]struct{}
		followers map[*Follower]struct{}
		unread    uint64 // followers have read all events below
		loads     int    // how often the whole state was set
		synced    bool
		heard     bool
	}
}

type indexValue struct{ index, value string }

// New returns an empty cache of def's objects that shares progress with the
// other caches of its feed.
func New(def *resource.Def, progress *Progress) *Cache {
	c := &Cache{Def: def, Progress: progress, synced: make(chan struct{}), heard: make(chan struct{})}
	c.mu.tree = newTree()
	c.mu.index = newIndex(def)
	if def.ByLabels {
		c.mu.labels = newLabelIndex()
	}
	c.mu.log.size, c.mu.log.oldest, c.mu.log.next, c.mu.log.old = logSize, logBegin, logBegin, logBegin
	c.mu.tails = map[*tail]struct{}{}
	c.mu.keyed = map[indexValue]map[*tail]struct{}{}
	c.mu.followers = map[*Follower]struct{}{}
	return c
}

// entry is an Item beside its key: a search touches keys alone, and needs no
// Item to search with.
type entry struct {
	key string
	it  *Item
}

func newTree() *btree.BTreeG[entry] {
	return btree.NewG(32, func(a, b entry) bool { return a.key < b.key })
}

func newIndex(def *resource.Def) map[string]map[string]map[string]*Item {
	index := make(map[string]map[string]map[string]*Item, len(def.Index))
	for name := range def.Index {
		index[name] = map[string]map[string]*Item{}
	}
	return index
}

// Synced is closed when the cache holds its first full state.
func (c *Cache) Synced() <-chan struct{} { return c.synced }

// Heard is closed when the cache holds what its feed has told, and not only what was known
// earlier: what is missing then is not there.
func (c *Cache) Heard() <-chan struct{} { return c.heard }

// Rev is the revision that the cache shows at least.
func (c *Cache) Rev() int64 { return c.Progress.Rev() }

// WaitRev returns when the cache shows revision rev or later (K4).
func (c *Cache) WaitRev(ctx context.Context, rev int64) error { return c.Progress.Wait(ctx, rev) }

// Get returns the object with the key, or nil.
func (c *Cache) Get(key string) *Item {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, _ := c.mu.tree.Get(entry{key: key})
	return e.it
}

// Finder returns a function that finds one object by its resource and name in the caches
// that of gives; nil: there is none, or no such cache.
func Finder(of func(def *resource.Def) *Cache) func(def *resource.Def, namespace, name string) resource.Object {
	return func(def *resource.Def, namespace, name string) resource.Object {
		if c := of(def); c != nil {
			if it := c.Get(Key(namespace, name)); it != nil {
				return it.Object
			}
		}
		return nil
	}
}

// Len is the number of objects.
func (c *Cache) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.tree.Len()
}

// Counts is what a cache tells of itself.
type Counts struct {
	Objects int
	Changes uint64 // that were taken in since it was made
	Room    int    // how many of them the log holds at most
	Loads   int    // how often it was told the whole state
}

// Counts counts.
func (c *Cache) Counts() Counts {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := c.mu.tree.Len()
	return Counts{Objects: n, Changes: c.mu.log.next - logBegin, Room: c.mu.log.room(n), Loads: c.mu.loads}
}

// List returns the objects of a namespace (empty: all) that the selector
// matches (nil: all), in the order of their keys.
func (c *Cache) List(namespace string, sel labels.Selector) []*Item {
	if namespace != "" && sel != nil {
		if items, ok := c.byLabels(namespace, sel); ok {
			return items
		}
	}
	var items []*Item
	c.Snapshot().Scan(namespace, "", func(it *Item) bool {
		if sel == nil || sel.Empty() || sel.Matches(labels.Set(it.Object.GetLabels())) {
			items = append(items, it)
		}
		return true
	})
	return items
}

// ByIndex returns the objects that have the value in the index, in no order.
// The index must be declared.
func (c *Cache) ByIndex(index, value string) []*Item {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found := c.mu.index[index][value]
	items := make([]*Item, 0, len(found))
	for _, it := range found {
		items = append(items, it)
	}
	return items
}

// Snapshot is the state at one revision; it stays as it is for ever and costs
// nothing but the memory of what has changed since.
type Snapshot struct {
	Rev  int64
	tree *btree.BTreeG[entry]
	kept bool // the cache has it ready for who asks again

	counts struct {
		sync.Mutex
		after map[string]int // how many objects follow a key, where that was counted
	}
}

// Snapshot returns the present state (K1).
func (c *Cache) Snapshot() *Snapshot {
	c.mu.Lock() // Clone writes to the tree it copies
	defer c.mu.Unlock()
	return &Snapshot{Rev: max(c.Progress.Rev(), c.mu.log.last), tree: c.mu.tree.Clone()}
}

// Len is the number of objects.
func (s *Snapshot) Len() int { return s.tree.Len() }

// After is how many objects have keys above one that [Snapshot.NoteAfter] was told of; ok
// is false if it was not: to count them is to look at each.
func (s *Snapshot) After(key string) (n int, ok bool) {
	s.counts.Lock()
	defer s.counts.Unlock()
	n, ok = s.counts.after[key]
	return n, ok
}

// NoteAfter notes how many objects have keys above one, for who goes on from there. It does
// so where others will read the same snapshot: see [Cache.SnapshotAt].
func (s *Snapshot) NoteAfter(key string, n int) {
	if !s.kept {
		return
	}
	s.counts.Lock()
	defer s.counts.Unlock()
	if s.counts.after == nil || len(s.counts.after) >= countsMost {
		s.counts.after = map[string]int{}
	}
	s.counts.after[key] = n
}

// countsMost is how many counts a snapshot keeps: of a list in pages each needs the one before.
const countsMost = 256

// Get returns the object with the key, or nil.
func (s *Snapshot) Get(key string) *Item {
	e, _ := s.tree.Get(entry{key: key})
	return e.it
}

// Scan calls fn with the objects of a namespace (empty: all) whose key is not
// below from, in order, until fn returns false.
func (s *Snapshot) Scan(namespace, from string, fn func(*Item) bool) {
	prefix := ""
	if namespace != "" {
		prefix = namespace + "/"
	}
	s.tree.AscendGreaterOrEqual(entry{key: max(prefix, from)}, func(e entry) bool {
		return strings.HasPrefix(e.key, prefix) && fn(e.it)
	})
}
