package watchcache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
)

const (
	// historyMost is how many changes of a resource are taken from the store's history at a time.
	historyMost = 1000
	// historyWithin is how long that may take.
	historyWithin = 5 * time.Second
)

var (
	errReached = errors.New("the history is there")
	errTooMuch = fmt.Errorf("%w: more than %d changes since", cache.ErrTooOld, historyMost)
)

// Recollect has the log of def's cache reach back to a revision, as far as the store remembers: who has followed
// another process, or one that was here before, goes on where that was. It answers cache.ErrTooOld if that
// cannot be, or costs more than to list anew.
func (s *Set) Recollect(ctx context.Context, def *resource.Def, after int64) error {
	s.mu.RLock()
	src := s.mu.byDef[def.Base()]
	s.mu.RUnlock()
	if src == nil {
		return cache.ErrTooOld
	}
	ctx, cancel := context.WithTimeoutCause(ctx, historyWithin, fmt.Errorf("%w: the store does not tell within %s", cache.ErrTooOld, historyWithin))
	defer cancel()
	select {
	case src.turn <- struct{}{}: // many come back at a time
		defer func() { <-src.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	begin, ok := src.cache.LogBegin()
	switch {
	case after >= begin:
		return nil
	case !ok:
		return cache.ErrTooOld
	}
	changes, err := s.changes(ctx, src, after, begin)
	if err != nil {
		return err
	}
	events, err := s.events(ctx, src, changes, after)
	if err != nil {
		return err
	}
	if !src.cache.Recollect(events, after, begin) {
		return cache.ErrTooOld
	}
	return nil
}

// changes are those of a resource after a revision, up to another.
func (s *Set) changes(ctx context.Context, src *source, after, upTo int64) (list []store.Change, _ error) {
	err := s.store.Watch(ctx, src.def.Key("", ""), after, func(changes []store.Change, progress int64) error {
		for _, c := range changes {
			if c.Rev > upTo {
				return errReached
			}
			if list = append(list, c); len(list) > historyMost {
				return errTooMuch
			}
		}
		if progress >= upTo {
			return errReached
		}
		return nil
	})
	switch {
	case errors.Is(err, errReached):
		return list, nil
	case errors.Is(err, store.ErrCompacted):
		return nil, cache.ErrTooOld
	}
	return nil, err
}

// events are changes as the cache would have told of them.
func (s *Set) events(ctx context.Context, src *source, changes []store.Change, after int64) ([]cache.Event, error) {
	last := map[string]*cache.Item{} // by key: the state before the next change
	events := make([]cache.Event, 0, len(changes))
	for _, c := range changes {
		prev, known := last[c.Key]
		if !known {
			var err error
			if prev, err = s.itemAt(ctx, src, c.Key, after); err != nil {
				return nil, err
			}
		}
		if c.Value == nil {
			last[c.Key] = nil
			if prev != nil {
				events = append(events, cache.Event{Type: cache.Deleted, Item: cache.Gone(prev, c.Rev).Item, Prev: prev})
			}
			continue
		}
		it, err := s.itemOf(src, c.KV)
		if err != nil {
			return nil, err
		}
		last[c.Key] = it
		e := cache.Event{Type: cache.Added, Item: it, Prev: prev}
		if prev != nil {
			e.Type = cache.Modified
		}
		events = append(events, e)
	}
	return events, nil
}

// itemAt is the object at a key at a revision; nil: there was none.
func (s *Set) itemAt(ctx context.Context, src *source, key string, rev int64) (*cache.Item, error) {
	got, err := s.store.List(ctx, key, store.ListOptions{Rev: rev, Limit: 1})
	switch {
	case errors.Is(err, store.ErrCompacted):
		return nil, cache.ErrTooOld
	case err != nil:
		return nil, err
	case len(got.KVs) == 0 || got.KVs[0].Key != key:
		return nil, nil
	}
	return s.itemOf(src, got.KVs[0])
}

// itemOf is the object of a value: the cached one if that is it.
func (s *Set) itemOf(src *source, kv store.KV) (*cache.Item, error) {
	key := itemKey(src, kv.Key)
	if it := src.cache.Get(key); it != nil && it.Rev == kv.Rev {
		return it, nil
	}
	obj, err := Read(src.def, kv)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", cache.ErrTooOld, kv.Key, err)
	}
	return &cache.Item{Key: key, Rev: kv.Rev, Object: obj}, nil
}
