package garbagecollector

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// census are the UIDs of all objects of a resource at one revision, and the namespace of each. A
// reference that was written before names an owner that is among them, or is gone: thousands of
// owners that are missed cost one walk over those there are. One of them may have gone since.
type census struct {
	def  *resource.Def
	rev  int64
	uids map[types.UID]string
	used time.Time
}

// censusKept is how long a census is kept that nobody asks.
const censusKept = time.Minute

// outside says that an object is in another namespace than the given one, which it never leaves.
func (c *census) outside(namespace string, uid types.UID) bool {
	at, ok := c.uids[uid]
	return ok && at != namespace
}

// censusLocked is one that answers for the references of an object.
func (c *collector) censusLocked(def *resource.Def, dependent resource.Object) *census {
	rev, err := strconv.ParseInt(dependent.GetResourceVersion(), 10, 64)
	last := c.mu.last
	if last == nil || last.def != def || last.rev < rev || err != nil {
		last = takeCensus(def, c.t.Cache(def, ""))
		c.mu.last = last
	}
	last.used = time.Now()
	return last
}

func takeCensus(def *resource.Def, all *cache.Cache) *census {
	c := &census{def: def, uids: map[types.UID]string{}}
	if all == nil { // the kind has gone meanwhile
		return c
	}
	now := all.Snapshot()
	c.rev = now.Rev
	now.Scan("", "", func(it *cache.Item) bool {
		c.uids[it.Object.GetUID()] = it.Object.GetNamespace()
		return true
	})
	return c
}

// forgetCensus drops one that was not asked for long.
func (c *collector) forgetCensus() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.last != nil && time.Since(c.mu.last.used) > censusKept {
		c.mu.last = nil
	}
}
