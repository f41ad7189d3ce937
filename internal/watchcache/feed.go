package watchcache

import (
	"bytes"
	"strconv"
	"strings"
	"sync"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
)

// take is called by the store's feed with whole revisions, in order.
func (s *Set) take(changes []store.Change, progress int64) error {
	batches := map[*source]*batch{}
	var others []store.Change
	for _, c := range changes {
		src := s.sourceOf(c.Key)
		if src == nil {
			others = append(others, c)
			continue
		}
		b := batches[src]
		if b == nil {
			b = &batch{src: src}
			batches[src] = b
		}
		b.add(s, c)
	}
	for src, b := range batches {
		src.take(b.changes)
	}
	s.others(others, progress)
	s.progress.Advance(progress) // W2
	return nil
}

// sourceOf finds the resource that a key of the store is of. A storage prefix may have
// several parts ("services/specs"), so all beginnings of the key are tried.
func (s *Set) sourceOf(key string) *source {
	rest, ok := strings.CutPrefix(key, root)
	if !ok {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := range len(rest) {
		if rest[i] != '/' {
			continue
		}
		if src := s.mu.byPrefix[rest[:i]]; src != nil {
			return src
		}
	}
	return nil
}

// batch is the changes of one resource that the feed delivered together.
type batch struct {
	src     *source
	changes []cache.Change
	last    map[string]*cache.Item // by key: the state after the batch's changes so far; nil: deleted
}

func (b *batch) add(s *Set, c store.Change) {
	key := itemKey(b.src, c.Key)
	if c.Value != nil {
		if it := s.item(b.src, c.KV); it != nil {
			b.put(key, it, cache.Change{Item: it})
		}
		return
	}
	s.note(c.Key, nil)
	if it := b.now(key); it != nil {
		b.put(key, nil, cache.Gone(it, c.Rev))
		return
	}
	// The cache has no object that this deletion is of. A list that is under way may bring
	// it: applyLocked decides whether the deletion counts.
	b.changes = append(b.changes, cache.Change{Item: &cache.Item{Key: key, Rev: c.Rev}, Delete: true})
}

func (b *batch) put(key string, it *cache.Item, c cache.Change) {
	if b.last == nil {
		b.last = map[string]*cache.Item{}
	}
	b.last[key] = it
	b.changes = append(b.changes, c)
}

// now is the object at a key after the batch's changes so far; nil: there is none.
func (b *batch) now(key string) *cache.Item {
	if it, ok := b.last[key]; ok {
		return it
	}
	return b.src.now(key)
}

// now is the object at a key after the changes that the source has taken; nil: there is
// none. Changes that wait for a list to end count.
func (src *source) now(key string) *cache.Item {
	src.mu.Lock()
	defer src.mu.Unlock()
	for i := len(src.mu.waiting) - 1; i >= 0; i-- {
		if c := src.mu.waiting[i]; c.Item.Key == key {
			if c.Delete {
				return nil
			}
			return c.Item
		}
	}
	return src.cache.Get(key)
}

func (src *source) take(changes []cache.Change) {
	src.mu.Lock()
	defer src.mu.Unlock()
	if src.mu.loading {
		src.mu.waiting = append(src.mu.waiting, changes...)
		return
	}
	src.applyLocked(changes)
}

// applyLocked applies the changes that are newer than the last list. A deletion for which
// batch.add knew no object gets the one that the list has brought. If the list has brought
// none, the deletion is dropped.
func (src *source) applyLocked(changes []cache.Change) {
	known := changes[:0]
	for _, c := range changes {
		if c.Item.Rev <= src.mu.rev {
			continue
		}
		if c.Item.Object == nil {
			it := src.cache.Get(c.Item.Key)
			if it == nil {
				continue
			}
			c = cache.Gone(it, c.Item.Rev)
		}
		known = append(known, c)
	}
	src.cache.Apply(known)
}

// item makes an Item of a value from the feed. Its object is the one that the value's
// writer has handed over, if there is one, and is decoded otherwise.
func (s *Set) item(src *source, kv store.KV) *cache.Item {
	x := s.handoffs.take(kv)
	if x == nil {
		return s.read(src, kv)
	}
	s.note(kv.Key, nil)
	return x.at(kv.Rev)
}

// Handoff takes the decoded form of a value of def that is about to be written at a key,
// so that the feed need not decode the value. obj is handed over. What the fields of obj
// refer to may be shared, and is not changed.
//
// After the write, at returns the Item at the revision of the write: the very Item that
// the cache shows or will show, so that an encoding made for the writer's answer serves
// other readers too. A writer whose write fails does nothing.
func (s *Set) Handoff(def *resource.Def, key string, value []byte, obj resource.Object) (at func(rev int64) *cache.Item) {
	if d, ok := obj.(resource.Document); ok {
		obj = d.Packed()
	}
	x := &handoff{def: def, value: value, obj: obj, cache: s.Cache(def), in: &s.interner}
	s.handoffs.put(key, x)
	return x.at
}

// handoffs holds the last handoff of each key, until the feed brings its value.
type handoffs struct {
	mu struct {
		sync.Mutex
		byKey map[string]*handoff
	}
}

// handoff is a value that is about to be written, with its decoded form.
type handoff struct {
	def   *resource.Def
	value []byte
	obj   resource.Object
	cache *cache.Cache // of the resource; nil: there is none
	in    *interner

	once sync.Once
	item *cache.Item // at the revision of the first write of the value
}

// at is the Item of the handoff at a revision at which its value was written.
func (x *handoff) at(rev int64) *cache.Item {
	x.once.Do(func() {
		x.obj.SetResourceVersion(strconv.FormatInt(rev, 10)) // W1
		var before *cache.Item
		if x.cache != nil {
			before = x.cache.Get(cache.Key(x.obj.GetNamespace(), x.obj.GetName()))
		}
		x.in.handed(x.def, x.obj, objectOf(before))
		x.item = newItem(x.obj, rev)
	})
	if x.item.Rev != rev { // two writers have written the same bytes
		return newItem(cache.AtRevision(x.obj, rev), rev)
	}
	return x.item
}

func newItem(obj resource.Object, rev int64) *cache.Item {
	return &cache.Item{Key: cache.Key(obj.GetNamespace(), obj.GetName()), Rev: rev, Object: obj}
}

// handoffMax is how many handoffs are kept. Those of writes that failed stay until there
// are so many; then all are dropped, and the feed decodes the values of those that it
// had yet to bring.
const handoffMax = 4096

func (h *handoffs) put(key string, x *handoff) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.byKey == nil || len(h.mu.byKey) >= handoffMax {
		h.mu.byKey = map[string]*handoff{}
	}
	h.mu.byKey[key] = x
}

// take removes and returns the handoff whose value is byte for byte that of kv; nil:
// there is none (W4).
func (h *handoffs) take(kv store.KV) *handoff {
	h.mu.Lock()
	defer h.mu.Unlock()
	x, ok := h.mu.byKey[kv.Key]
	if !ok || !bytes.Equal(x.value, kv.Value) {
		return nil
	}
	delete(h.mu.byKey, kv.Key)
	return x
}
