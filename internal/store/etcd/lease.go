package etcd

import (
	"context"
	"math"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// leases groups keys of about the same end under one lease of etcd's: a lease
// of its own for each event would cost more than the events.
type leases struct {
	mu struct {
		sync.Mutex
		byTTL map[time.Duration]*lease // the newest of each
	}
}

type lease struct {
	id   clientv3.LeaseID
	end  time.Time
	keys int
}

// Keys may outlive their time by a twentieth of it, at most one minute.
const (
	leaseKeys     = 1000
	leaseStretch  = 20
	leaseMaxExtra = time.Minute
)

// get returns a lease that ends in ttl or a little later.
func (l *leases) get(ctx context.Context, c *clientv3.Client, ttl time.Duration) (clientv3.LeaseID, error) {
	if id, ok := l.reuse(ttl); ok {
		return id, nil
	}
	extra := min(ttl/leaseStretch, leaseMaxExtra).Truncate(time.Second)
	granted := time.Now()
	r, err := c.Grant(ctx, int64(math.Ceil((ttl + extra).Seconds())))
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.byTTL == nil {
		l.mu.byTTL = map[time.Duration]*lease{}
	}
	l.mu.byTTL[ttl] = &lease{id: r.ID, end: granted.Add(ttl + extra), keys: 1}
	return r.ID, nil
}

func (l *leases) reuse(ttl time.Duration) (clientv3.LeaseID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	le := l.mu.byTTL[ttl]
	if le == nil || le.keys >= leaseKeys || time.Until(le.end) < ttl {
		return 0, false
	}
	le.keys++
	return le.id, true
}
