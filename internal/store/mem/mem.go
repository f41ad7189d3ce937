package mem

import (
	"context"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/google/btree"

	"github.com/kemudi/kemudi/internal/store"
)

// Options tune a store. The zero value works.
type Options struct {
	// History is how long old revisions stay readable. Default 5 minutes.
	History time.Duration
}

func (o Options) withDefaults() Options {
	if o.History <= 0 {
		o.History = 5 * time.Minute
	}
	return o
}

// Store is a store in memory.
type Store struct {
	o Options

	mu struct {
		sync.RWMutex
		keys      *btree.BTreeG[*entry]
		rev       int64
		compacted int64          // nothing below it can be read
		log       []store.Change // all changes above compacted, in revision order
		marks     []mark         // when which revision was the newest, oldest first
		expiry    expiryHeap
		timer     *time.Timer // for the earliest expiry; nil: none
		lives     map[store.Life]*life
		lived     store.Life    // the newest
		changed   chan struct{} // closed and replaced by every write
	}
}

var _ store.Store = (*Store)(nil)

// entry is a key with its history, oldest first. The last version below the
// compaction point is kept, since it is the state there.
type entry struct {
	key      string
	versions []version
}

type version struct {
	rev   int64
	value []byte // nil: deleted
}

type mark struct {
	at  time.Time
	rev int64
}

// New returns an empty store at revision 1.
func New(o Options) *Store {
	s := &Store{o: o.withDefaults()}
	s.mu.keys = btree.NewG(32, func(a, b *entry) bool { return a.key < b.key })
	s.mu.rev = 1
	s.mu.changed = make(chan struct{})
	s.mu.lives = map[store.Life]*life{}
	return s
}

// at is the state of the key at a revision.
func (e *entry) at(rev int64) store.KV {
	n := sort.Search(len(e.versions), func(i int) bool { return e.versions[i].rev > rev })
	if n == 0 || e.versions[n-1].value == nil {
		return store.KV{Key: e.key}
	}
	v := e.versions[n-1]
	return store.KV{Key: e.key, Value: v.value, Rev: v.rev}
}

func (s *Store) nowLocked(key string) store.KV {
	e, ok := s.mu.keys.Get(&entry{key: key})
	if !ok {
		return store.KV{Key: key}
	}
	return e.at(math.MaxInt64)
}

// Get reads one key.
func (s *Store) Get(ctx context.Context, key string) (store.KV, int64, error) {
	if ctx.Err() != nil {
		return store.KV{}, 0, context.Cause(ctx)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.nowLocked(key), s.mu.rev, nil
}

// Rev is the revision of the newest write.
func (s *Store) Rev(ctx context.Context) (int64, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.rev, nil
}

// List reads the keys with a prefix.
func (s *Store) List(ctx context.Context, prefix string, o store.ListOptions) (store.Page, error) {
	if ctx.Err() != nil {
		return store.Page{}, context.Cause(ctx)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	page := store.Page{Rev: s.mu.rev}
	if o.Rev != 0 {
		page.Rev = o.Rev
	}
	switch {
	case page.Rev > s.mu.rev:
		return store.Page{}, store.ErrFuture
	case page.Rev < s.mu.compacted:
		return store.Page{}, store.ErrCompacted
	}
	s.mu.keys.AscendGreaterOrEqual(&entry{key: max(prefix, o.From)}, func(e *entry) bool {
		if !strings.HasPrefix(e.key, prefix) {
			return false
		}
		kv := e.at(page.Rev)
		switch {
		case kv.Rev == 0:
		case o.Limit > 0 && len(page.KVs) == o.Limit:
			page.More++
		default:
			page.KVs = append(page.KVs, kv)
		}
		return true
	})
	return page, nil
}

// Txn applies all writes in one revision if all conditions hold.
func (s *Store) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if ctx.Err() != nil {
		return store.TxnResult{}, context.Cause(ctx)
	}
	if _, err := t.Check(); err != nil {
		return store.TxnResult{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range t.Conds {
		if s.nowLocked(c.Key).Rev != c.Rev {
			return store.TxnResult{Rev: s.mu.rev, Now: s.stateLocked(t.Conds)}, nil
		}
	}
	for _, op := range t.Ops {
		if op.Life != 0 && s.mu.lives[op.Life] == nil {
			return store.TxnResult{}, store.ErrLifeOver
		}
	}
	s.writeLocked(t.Ops)
	return store.TxnResult{OK: true, Rev: s.mu.rev}, nil
}

func (s *Store) stateLocked(conds []store.Cond) []store.KV {
	kvs := make([]store.KV, len(conds))
	for i, c := range conds {
		kvs[i] = s.nowLocked(c.Key)
	}
	return kvs
}

// writeLocked makes the next revision of ops, unless they change nothing.
func (s *Store) writeLocked(ops []store.Op) {
	rev := s.mu.rev + 1
	for _, op := range ops {
		e, ok := s.mu.keys.Get(&entry{key: op.Key})
		if op.Value == nil && (!ok || e.at(rev).Rev == 0) {
			continue // deletes what is not there
		}
		if !ok {
			e = &entry{key: op.Key}
			s.mu.keys.ReplaceOrInsert(e)
		}
		if op.Keep {
			s.keepLocked(op.Key, e.at(rev).Rev, rev)
		}
		e.versions = append(e.versions, version{rev, op.Value})
		s.mu.log = append(s.mu.log, store.Change{KV: store.KV{Key: op.Key, Value: op.Value, Rev: rev}})
		s.mu.rev = rev
		if op.Value != nil && op.TTL > 0 {
			s.expireLocked(op.Key, rev, op.TTL)
		}
		if op.Value != nil && op.Life != 0 {
			s.mu.lives[op.Life].keys[op.Key] = rev
		}
	}
	if s.mu.rev != rev {
		return
	}
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
	s.forgetLocked()
}

// Watch calls fn with the changes under a prefix.
func (s *Store) Watch(ctx context.Context, prefix string, after int64, fn func([]store.Change, int64) error) error {
	for {
		changes, rev, changed, err := s.since(prefix, after)
		if err != nil {
			return err
		}
		if rev > after {
			if err := fn(changes, rev); err != nil {
				return err
			}
			after = rev
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if ctx.Err() != nil { // both were ready
			return context.Cause(ctx)
		}
	}
}

// since is the changes after a revision up to the newest one, and a channel
// that is closed when there are more.
func (s *Store) since(prefix string, after int64) ([]store.Change, int64, <-chan struct{}, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if after < s.mu.compacted {
		return nil, 0, nil, store.ErrCompacted
	}
	var changes []store.Change
	n := sort.Search(len(s.mu.log), func(i int) bool { return s.mu.log[i].Rev > after })
	for _, c := range s.mu.log[n:] {
		if strings.HasPrefix(c.Key, prefix) {
			changes = append(changes, c)
		}
	}
	return changes, s.mu.rev, s.mu.changed, nil
}

// Compact forgets the history below rev.
func (s *Store) Compact(ctx context.Context, rev int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case rev > s.mu.rev:
		return store.ErrFuture
	case rev > s.mu.compacted:
		s.compactLocked(rev)
	}
	return nil
}

func (s *Store) compactLocked(rev int64) {
	n := sort.Search(len(s.mu.log), func(i int) bool { return s.mu.log[i].Rev > rev })
	for _, c := range s.mu.log[:n] {
		e, ok := s.mu.keys.Get(&entry{key: c.Key})
		if !ok {
			continue // had several changes
		}
		keep := sort.Search(len(e.versions), func(i int) bool { return e.versions[i].rev > rev }) - 1
		if keep >= 0 && e.versions[keep].value == nil {
			keep++
		}
		e.versions = slices.Delete(e.versions, 0, max(keep, 0))
		if len(e.versions) == 0 {
			s.mu.keys.Delete(e)
		}
	}
	clear(s.mu.log[:n])
	s.mu.log = s.mu.log[n:] // the next growth of the slice frees the front
	s.mu.compacted = rev
}

// forgetLocked compacts away what is older than the history to be kept. It
// works in steps of a tenth of it.
func (s *Store) forgetLocked() {
	now := time.Now()
	if n := len(s.mu.marks); n == 0 || now.Sub(s.mu.marks[n-1].at) >= s.o.History/10 {
		s.mu.marks = append(s.mu.marks, mark{now, s.mu.rev})
	}
	for len(s.mu.marks) > 0 && now.Sub(s.mu.marks[0].at) >= s.o.History {
		if m := s.mu.marks[0]; m.rev > s.mu.compacted {
			s.compactLocked(m.rev)
		}
		s.mu.marks = s.mu.marks[1:]
	}
}
