package watchcache

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
)

// pageSize is how many values are read, and then decoded, at a time.
const pageSize = 500

// loadAll takes in the state of all resources at one revision.
func (s *Set) loadAll(ctx context.Context) error {
	rev, err := s.store.Rev(ctx)
	if err != nil {
		return fmt.Errorf("read the revision of the store: %w", err)
	}
	g := task.NewGroup(ctx)
	for _, src := range s.sources() {
		g.Go(src.def.String(), func(ctx context.Context) error { return s.load(ctx, src, rev) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	s.missed(rev)
	s.progress.Advance(rev) // W2
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.loaded {
		s.mu.loaded = true
		close(s.synced)
	}
	return nil
}

// load takes in the state of one resource at rev, 0 for the newest, and then
// the changes that the feed brought meanwhile.
func (s *Set) load(ctx context.Context, src *source, rev int64) error {
	number, bad := src.begin(), s.badOf(src)
	items, rev, err := s.list(ctx, src, rev, bad)
	if err != nil {
		return err
	}
	for key := range bad {
		s.note(key, nil) // it has gone
	}
	src.mu.Lock()
	defer src.mu.Unlock()
	if src.mu.load != number {
		return nil // another list was begun, and will bring newer state
	}
	waiting := src.mu.waiting
	src.cache.Replace(items, rev)
	src.mu.loading, src.mu.waiting, src.mu.rev = false, nil, rev
	src.applyLocked(waiting)
	return nil
}

// list reads and decodes all objects of a resource, a page at a time. Their keys are taken out of bad.
func (s *Set) list(ctx context.Context, src *source, rev int64, bad map[string]bool) ([]*cache.Item, int64, error) {
	prefix := src.def.Key("", "")
	g := task.NewGroup(ctx)
	free := make(chan struct{}, runtime.GOMAXPROCS(0)) // pages that may be decoded at one time
	var pages [][]*cache.Item
	o := store.ListOptions{Limit: pageSize, Rev: rev}
	var err error
	for {
		var page store.Page
		if page, err = s.store.List(ctx, prefix, o); err != nil {
			break
		}
		o.Rev = page.Rev
		for i := 0; i < len(page.KVs) && len(bad) > 0; i++ {
			delete(bad, page.KVs[i].Key)
		}
		items := make([]*cache.Item, len(page.KVs))
		pages = append(pages, items)
		free <- struct{}{}
		g.Go("decode", func(context.Context) error {
			defer func() { <-free }()
			for i, kv := range page.KVs {
				items[i] = s.read(src, kv)
			}
			return nil
		})
		if page.More == 0 {
			break
		}
		o.From = page.KVs[len(page.KVs)-1].Key + "\x00"
	}
	if decodeErr := g.Wait(); err != nil || decodeErr != nil {
		return nil, 0, cmp.Or(err, decodeErr)
	}
	items := slices.Concat(pages...)
	return slices.DeleteFunc(items, func(it *cache.Item) bool { return it == nil }), o.Rev, nil
}

// read makes an Item of a stored value, or nil if that cannot be read (W3).
func (s *Set) read(src *source, kv store.KV) *cache.Item {
	obj, err := Read(src.def, kv)
	s.note(kv.Key, err)
	if err != nil {
		return nil
	}
	key := itemKey(src, kv.Key)
	s.interner.decoded(src.def, obj, objectOf(src.cache.Get(key)))
	return &cache.Item{Key: key, Rev: kv.Rev, Object: obj}
}

// objectOf is the object of an Item that may not be there.
func objectOf(it *cache.Item) resource.Object {
	if it == nil {
		return nil
	}
	return it.Object
}

func itemKey(src *source, key string) string {
	return strings.TrimPrefix(key, root)[len(src.def.StoragePrefix)+1:]
}
