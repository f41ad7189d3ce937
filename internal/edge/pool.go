package edge

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// How long an endpoint is left alone that could not be reached: the first time, and at most.
const (
	leaveFirst = time.Second
	leaveMost  = 30 * time.Second
)

// endpoint is an address that serves. It lives as long as some upstream has it without a
// break.
type endpoint struct {
	address string
	token   string // stands for it in cookies
	// left is until when it is left alone, counted from the start of the edge; fails is how
	// often in a row it could not be reached.
	left  atomic.Int64
	fails atomic.Int32
	gone  chan struct{} // closed when the upstream has it no more
}

// pool is the endpoints of an upstream. They are taken in turn.
type pool struct {
	endpoints []*endpoint
	next      atomic.Uint32
}

// poolsAfter returns the pools after a change. Of an endpoint that stays, what is known stays.
func (e *Edge) poolsAfter(old *state, c *route.Change) map[string]*pool {
	known := old.pools
	if len(c.Upstreams) == 0 && !c.Whole {
		return known
	}
	pools := map[string]*pool{}
	if !c.Whole {
		pools = maps.Clone(known)
		if pools == nil {
			pools = map[string]*pool{}
		}
	}
	gone := e.forward.plain.Forget
	for key, u := range c.Upstreams {
		if u == nil {
			known[key].leave(nil, gone)
			delete(pools, key)
			continue
		}
		p := &pool{}
		for _, address := range u.Endpoints {
			p.endpoints = append(p.endpoints, known[key].find(address))
		}
		known[key].leave(p, gone)
		pools[key] = p
	}
	if c.Whole {
		for key, p := range known {
			if _, told := c.Upstreams[key]; !told {
				p.leave(nil, gone)
			}
		}
	}
	return pools
}

// find returns the endpoint of an address, a new one if there is none.
func (p *pool) find(address string) *endpoint {
	if one := p.current(address); one != nil {
		return one
	}
	sum := sha256.Sum256([]byte(address))
	return &endpoint{address: address, token: hex.EncodeToString(sum[:16]), gone: make(chan struct{})}
}

// current is the endpoint of an address, nil if there is none.
func (p *pool) current(address string) *endpoint {
	if p == nil {
		return nil
	}
	if i := slices.IndexFunc(p.endpoints, func(e *endpoint) bool { return e.address == address }); i >= 0 {
		return p.endpoints[i]
	}
	return nil
}

// leave tells who is connected to endpoints that are not in the next pool, which may be nil, and tells gone their
// addresses.
func (p *pool) leave(next *pool, gone func(address string)) {
	if p == nil {
		return
	}
	told := map[*endpoint]bool{} // or there is nothing to tell
	if next != nil {
		for _, one := range next.endpoints {
			told[one] = true
		}
	}
	for _, one := range p.endpoints { // some may be there twice
		if !told[one] {
			told[one] = true
			close(one.gone)
			gone(one.address)
		}
	}
}

// pick returns whose turn it is, of those that were not tried: the wanted one, if there is
// one with its token, then those that could be reached the last time, then any.
func (p *pool) pick(now time.Duration, wanted string, tried []*endpoint) *endpoint {
	if p == nil || len(p.endpoints) == 0 {
		return nil
	}
	if wanted != "" {
		if i := slices.IndexFunc(p.endpoints, func(e *endpoint) bool { return e.token == wanted }); i >= 0 {
			if one := p.endpoints[i]; !slices.Contains(tried, one) && !one.leftAlone(now) {
				return one
			}
		}
	}
	n := len(p.endpoints)
	first := int(p.next.Add(1) % uint32(n))
	var some *endpoint
	for i := range n {
		one := p.endpoints[(first+i)%n]
		switch {
		case slices.Contains(tried, one):
		case !one.leftAlone(now):
			return one
		case some == nil:
			some = one
		}
	}
	return some
}

func (e *endpoint) leftAlone(now time.Duration) bool {
	left := e.left.Load()
	return left != 0 && time.Duration(left) > now
}

// reached notes that an endpoint has answered.
func (e *endpoint) reached() {
	if e.left.Load() != 0 {
		e.left.Store(0)
		e.fails.Store(0)
	}
}

// missed notes that an endpoint could not be reached.
func (e *endpoint) missed(now time.Duration) {
	n := min(e.fails.Add(1), 6)
	e.left.Store(int64(now + min(leaveFirst<<(n-1), leaveMost)))
}
