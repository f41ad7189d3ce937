package read

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// Reader reads from the caches, as new as a request wants it. Its methods may be called
// concurrently.
type Reader struct {
	Store store.Store
	// Stored knows more of the store; nil: all can be read, and no watch begins before the logs of the caches.
	Stored Stored
	// Took is told how long the store took for an operation about objects of a resource: "get", "list",
	// "create", "update" or "delete". Nil: nobody is told.
	Took func(operation string, def *resource.Def, took time.Duration, err error)
	// Sources make the objects of computed resources.
	Sources map[*resource.Def]Source

	lists tally
	// committed is the last revision that a write of this process was answered with (A3).
	committed atomic.Int64
	shared    atomic.Bool // other servers write to the store as well
}

// Share says that other servers write to the store as well, from now on: it alone knows how new the
// newest state is.
func (r *Reader) Share() { r.shared.Store(true) }

// Get reads one object. rev is the resourceVersion parameter: empty for the
// newest state (A3), "0" for what is at hand, otherwise at least that revision.
func (r *Reader) Get(ctx context.Context, c *call.Call, rev string) (*cache.Item, error) {
	if c.Resource.Def.Computed {
		return r.computeOne(ctx, c)
	}
	ctx, span := c.Step(ctx, "cacher.Get")
	defer span.End()
	if err := r.FreshEnough(ctx, c, rev); err != nil {
		return nil, err
	}
	if err := r.readable(c); err != nil {
		return nil, err
	}
	it := c.Resource.Cache.Get(c.CacheKey())
	if it == nil {
		return nil, c.NotFound()
	}
	return it, nil
}

// futureWait is how long a read waits for a revision that is not there yet.
const futureWait = 3 * time.Second

// FreshEnough waits until the cache may answer a read with the resourceVersion.
func (r *Reader) FreshEnough(ctx context.Context, c *call.Call, rev string) error {
	if rev == "" {
		return r.CaughtUp(ctx, c.Resource.Cache)
	}
	least, err := ParseRevision(rev)
	if err != nil {
		return err
	}
	if err := r.Synced(ctx, c.Resource.Cache); err != nil {
		return err
	}
	if c.Resource.Cache.Rev() >= least {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, futureWait)
	defer cancel()
	if err := c.Resource.Cache.WaitRev(wait, least); err == nil || ctx.Err() != nil {
		return err
	}
	return tooLarge(least, c.Resource.Cache.Rev())
}

// tooLarge says that a client knows of a revision that the server does not.
func tooLarge(asked, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// ParseRevision reads a resourceVersion.
func ParseRevision(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	rev, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, refusal.BadRequest("resourceVersion: Invalid value: %q: %v", s, err)
	}
	return int64(rev), nil
}

// Latest reads the state of the call's object: from the cache once that has
// seen every write that was answered, or, if fresh, from the store itself.
func (r *Reader) Latest(ctx context.Context, c *call.Call, fresh bool) (*cache.Item, error) {
	if !fresh {
		if err := r.CaughtUp(ctx, c.Resource.Cache); err != nil {
			return nil, err
		}
		if c.Verb != "create" { // that the name is taken is known all the same
			if err := r.readable(c); err != nil {
				return nil, err
			}
		}
		return c.Resource.Cache.Get(c.CacheKey()), nil
	}
	began := time.Now()
	kv, _, err := r.Store.Get(ctx, c.Key())
	r.Tell("get", c, began, err)
	if err != nil || kv.Rev == 0 {
		return nil, err
	}
	return r.decodeItem(c.Resource.Def, kv)
}

// Synced returns when the cache has its first state.
func (r *Reader) Synced(ctx context.Context, c *cache.Cache) error {
	select {
	case <-c.Synced():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// CaughtUp returns when the cache shows all writes answered so far (A3).
func (r *Reader) CaughtUp(ctx context.Context, c *cache.Cache) error {
	if err := r.Synced(ctx, c); err != nil {
		return err
	}
	rev := r.committed.Load()
	if r.shared.Load() {
		var err error
		if rev, err = r.Store.Rev(ctx); err != nil {
			return err
		}
	}
	return c.WaitRev(ctx, rev)
}

// decodeItem makes of a stored value what the cache would hold.
func (r *Reader) decodeItem(d *resource.Def, kv store.KV) (*cache.Item, error) {
	obj, err := watchcache.Read(d, kv)
	if err != nil {
		return nil, apierrors.NewInternalError(corrupt(kv.Key, err))
	}
	return NewItem(obj, kv.Rev), nil
}

// NewItem is what a cache would hold of an object at a revision.
func NewItem(obj resource.Object, rev int64) *cache.Item {
	return &cache.Item{Key: cache.Key(obj.GetNamespace(), obj.GetName()), Rev: rev, Object: obj}
}

// Tell tells how long the store has taken for an operation that a call asked for.
func (r *Reader) Tell(operation string, c *call.Call, began time.Time, err error) {
	took := time.Since(began)
	c.Audit.Spent(audit.Store, took)
	if r.Took != nil {
		r.Took(operation, c.Resource.Def, took, err)
	}
}

// Answered notes that a write at rev is about to be answered.
func (r *Reader) Answered(rev int64) {
	for {
		last := r.committed.Load()
		if rev <= last || r.committed.CompareAndSwap(last, rev) {
			return
		}
	}
}
