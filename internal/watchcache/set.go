package watchcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
)

// Options say what is cached.
type Options struct {
	Store store.Store // required
	// Defs are the resources to cache from the start. Those that are not stored
	// are passed over.
	Defs []*resource.Def
	// Others is called with the changes of keys that are of no resource of the Set, nil if there
	// are none, and with the revision that the feed has come to. It has returned before Progress passes
	// that, and may not call the Set. Default: nobody is told.
	Others func(changes []store.Change, rev int64)
	// Missed is called with the revision of a new list of all resources: what has changed
	// up to there has not been told to Others. As Others otherwise.
	Missed func(rev int64)
	// Logger is told of what cannot be read. Default: nobody.
	Logger *slog.Logger
}

// Set is the caches of all resources of one store. Its methods may be called
// concurrently.
type Set struct {
	store      store.Store
	others     func(changes []store.Change, rev int64)
	missed     func(rev int64)
	log        *slog.Logger
	progress   *cache.Progress
	handoffs   handoffs
	interner   interner
	synced     chan struct{}
	unreadable atomic.Int64 // how many values cannot be read

	mu struct {
		sync.RWMutex
		byPrefix map[string]*source // by storage prefix
		byDef    map[*resource.Def]*source
		loaded   bool             // the first state of all has been taken in
		bad      map[string]error // why values cannot be read, by their keys
	}
}

// source is one resource's part of the feed.
type source struct {
	def   *resource.Def
	cache *cache.Cache
	turn  chan struct{} // has room for one, who recollects its history

	mu struct {
		sync.Mutex
		load    int            // number of the list that is under way, or was the last one
		loading bool           // it is under way: changes wait for it
		waiting []cache.Change // in revision order
		rev     int64          // revision of the list: older changes are in it
	}
}

// begin starts a list of the resource and returns its number.
func (src *source) begin() int {
	src.mu.Lock()
	defer src.mu.Unlock()
	src.mu.load++
	src.mu.loading, src.mu.waiting = true, nil
	return src.mu.load
}

// root is the prefix of all keys, as upstream's.
const root = "/registry/"

// trimEvery is how often the caches forget changes that are as old as that.
const trimEvery = 150 * time.Second

// New returns the caches, which are empty until Run has read their state.
func New(o Options) (*Set, error) {
	if o.Store == nil {
		return nil, errors.New("watch cache options: no store")
	}
	s := &Set{store: o.Store, others: o.Others, missed: o.Missed, log: o.Logger, progress: &cache.Progress{}, synced: make(chan struct{})}
	if s.others == nil {
		s.others = func([]store.Change, int64) {}
	}
	if s.missed == nil {
		s.missed = func(int64) {}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.mu.byPrefix, s.mu.byDef, s.mu.bad = map[string]*source{}, map[*resource.Def]*source{}, map[string]error{}
	for _, def := range o.Defs {
		if !def.Stored() {
			continue
		}
		if _, err := s.register(def); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Set) register(def *resource.Def) (*source, error) {
	src := &source{def: def, cache: cache.New(def, s.progress), turn: make(chan struct{}, 1)}
	src.mu.loading = true
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.mu.byPrefix[def.StoragePrefix]; other != nil {
		return nil, fmt.Errorf("cache %s: %s has the storage prefix %s already", def, other.def, def.StoragePrefix)
	}
	s.mu.byPrefix[def.StoragePrefix], s.mu.byDef[def.Base()] = src, src
	return src, nil
}

// Cache is the one cache of def's objects, and of those of a definition that replaces it; nil if the resource is not cached.
func (s *Set) Cache(def *resource.Def) *cache.Cache {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if src := s.mu.byDef[def.Base()]; src != nil {
		return src.cache
	}
	return nil
}

// Synced is closed when all caches that were there from the start have their
// first state.
func (s *Set) Synced() <-chan struct{} { return s.synced }

// Progress is the revision that all caches show at least.
func (s *Set) Progress() *cache.Progress { return s.progress }

// Fresh returns when the caches show all that the store held when it was
// called, whoever wrote it.
func (s *Set) Fresh(ctx context.Context) error {
	rev, err := s.store.Rev(ctx)
	if err != nil {
		return fmt.Errorf("read the revision of the store: %w", err)
	}
	return s.progress.Wait(ctx, rev)
}

// Add caches one more resource and returns when its state is there. Run must
// be running.
func (s *Set) Add(ctx context.Context, def *resource.Def) (*cache.Cache, error) {
	select {
	case <-s.synced:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	src, err := s.register(def)
	if err != nil {
		return nil, err
	}
	if err := s.load(ctx, src, 0); err != nil {
		s.Remove(def)
		return nil, err
	}
	select {
	case <-src.cache.Synced(): // or soon, by a list of all resources that has come in between
		return src.cache, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Remove ends the caching of a resource: its cache stays as it is.
func (s *Set) Remove(def *resource.Def) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if src := s.mu.byDef[def.Base()]; src != nil {
		delete(s.mu.byDef, def.Base())
		delete(s.mu.byPrefix, def.StoragePrefix)
		for key := range s.mu.bad {
			if strings.HasPrefix(key, root+def.StoragePrefix+"/") {
				delete(s.mu.bad, key)
			}
		}
		s.unreadable.Store(int64(len(s.mu.bad)))
	}
}

// Run reads the state of all resources and then follows the store until ctx ends.
func (s *Set) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	g.Go("feed", s.follow)
	g.Go("trim", func(ctx context.Context) error {
		for task.Sleep(ctx, trimEvery) == nil {
			for _, src := range s.sources() {
				src.cache.Trim()
			}
		}
		return nil
	})
	return g.Wait()
}

func (s *Set) sources() []*source {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*source, 0, len(s.mu.byDef))
	for _, src := range s.mu.byDef {
		all = append(all, src)
	}
	return all
}

// follow takes in the state and then the changes, again and again if need be.
func (s *Set) follow(ctx context.Context) error {
	wait := task.Backoff{Initial: 10 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.2}
	current := false // the caches are as the store was at the revision of progress
	for {
		err := error(nil)
		if !current {
			err = s.loadAll(ctx)
			current = err == nil
		}
		if current {
			wait.Reset()
			err = s.store.Watch(ctx, root, s.progress.Rev(), s.take)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, store.ErrCompacted):
			s.log.Warn("the store has forgotten changes, reading all objects again", "rev", s.progress.Rev())
			current = false
		default:
			s.log.Warn("the feed from the store was interrupted", "rev", s.progress.Rev(), "err", err)
		}
		if task.Sleep(ctx, wait.Next()) != nil {
			return ctx.Err()
		}
	}
}
