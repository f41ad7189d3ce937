package watchcache

import (
	"context"
	"slices"
	"strings"
)

// toldMost is how many values that cannot be read are told of one by one: with a wrong key it is all of them.
const toldMost = 100

// note remembers which values cannot be read.
func (s *Set) note(key string, err error) {
	s.mu.RLock()
	_, was := s.mu.bad[key]
	s.mu.RUnlock()
	if was == (err != nil) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.mu.bad, key)
		s.unreadable.Store(int64(len(s.mu.bad)))
		return
	}
	s.mu.bad[key] = err
	s.unreadable.Store(int64(len(s.mu.bad)))
	switch n := len(s.mu.bad); {
	case n <= toldMost:
		s.log.Error("a stored object cannot be read and is passed over", "key", key, "err", err)
	case n == toldMost+1:
		s.log.Error("more stored objects cannot be read, and are passed over", "key", key, "err", err)
	}
}

// Unreadable is why what the store has at a key cannot be read (W3); nil: it can, or nothing is there.
func (s *Set) Unreadable(key string) error {
	if s.unreadable.Load() == 0 {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.bad[key]
}

// UnreadableBelow are the keys with a prefix at which the store has what cannot be read, in order.
func (s *Set) UnreadableBelow(prefix string) (keys []string) {
	if s.unreadable.Load() == 0 {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key := range s.mu.bad {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// badOf are the keys of a resource at which there is what cannot be read.
func (s *Set) badOf(src *source) map[string]bool {
	bad := map[string]bool{}
	for _, key := range s.UnreadableBelow(src.def.Key("", "")) {
		bad[key] = true
	}
	return bad
}

// Again reads the resources again of which something could not be read: it may be now.
func (s *Set) Again(ctx context.Context) error {
	select {
	case <-s.synced:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, src := range s.sources() {
		if len(s.badOf(src)) == 0 {
			continue
		}
		if err := s.load(ctx, src, 0); err != nil {
			return err
		}
	}
	return nil
}
