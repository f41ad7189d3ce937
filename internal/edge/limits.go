package edge

import (
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/edge/route"
)

const (
	defaultBurst = 5
	// mostClients is how many of a site are counted at once. Who is quiet makes room; if nobody is,
	// new ones are refused.
	mostClients = 1 << 16
	// clientBits of an IPv6 address are one client's: whoever has a network has all of its addresses.
	clientBits = 64
)

// usage is what the clients of a site with limits do now. It lives as long as the limits stay as
// they are.
type usage struct {
	limits *route.Limits
	mu     struct {
		sync.Mutex
		of map[netip.Addr]*client
	}
}

// client is what one has used. The times are when nothing is held against it any more, counted
// from the start of the edge.
type client struct {
	running        int
	second, minute time.Duration
}

func (c *client) quiet(now time.Duration) bool {
	return c.running == 0 && c.second <= now && c.minute <= now
}

// usageAfter returns what is counted after a change.
func usageAfter(old *state, c *route.Change) map[string]*usage {
	if len(c.Sites) == 0 && !c.Whole {
		return old.usage
	}
	now := map[string]*usage{}
	if !c.Whole {
		maps.Copy(now, old.usage)
	}
	for key, s := range c.Sites {
		switch {
		case s == nil || s.Options == nil || s.Options.Limits == nil:
			delete(now, key)
		case old.usage[key] != nil && reflect.DeepEqual(old.usage[key].limits, s.Options.Limits):
			now[key] = old.usage[key]
		default:
			u := &usage{limits: s.Options.Limits}
			u.mu.of = map[netip.Addr]*client{}
			now[key] = u
		}
	}
	return now
}

// clientIn is the address under which a client is counted.
func clientIn(a netip.Addr) netip.Addr {
	if a.Is4() {
		return a
	}
	p, err := a.WithZone("").Prefix(clientBits)
	if err != nil {
		return a
	}
	return p.Addr()
}

// enter counts a request, if the site has limits. If it is one too many, it has been answered.
func (x *exchange) enter(a *answer) bool {
	u := x.s.usage[x.target.Site.Key]
	if u == nil || within(u.limits.Free, x.client) {
		return true
	}
	if !u.enter(clientIn(x.client), time.Since(x.e.began)) {
		x.e.refuse(a, "limit", http.StatusServiceUnavailable)
		return false
	}
	x.usage = u
	return true
}

// leave is the end of a request that was counted.
func (x *exchange) leave() {
	if x.usage != nil {
		x.usage.leave(clientIn(x.client))
	}
}

func (u *usage) enter(from netip.Addr, now time.Duration) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := u.mu.of[from]
	if c == nil {
		if len(u.mu.of) >= mostClients {
			maps.DeleteFunc(u.mu.of, func(_ netip.Addr, c *client) bool { return c.quiet(now) })
			if len(u.mu.of) >= mostClients {
				return false
			}
		}
		c = &client{}
		u.mu.of[from] = c
	}
	l := u.limits
	second, okSecond := rate{time.Second, l.PerSecond, l.Burst}.take(c.second, now)
	minute, okMinute := rate{time.Minute, l.PerMinute, l.Burst}.take(c.minute, now)
	if l.Connections > 0 && c.running >= l.Connections || !okSecond || !okMinute {
		return false
	}
	c.running, c.second, c.minute = c.running+1, second, minute
	return true
}

func (u *usage) leave(from netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c := u.mu.of[from]; c != nil {
		c.running--
	}
}

// rate is so many requests in a time, and burst times as many at once.
type rate struct {
	within time.Duration
	most   int // 0: any
	burst  int // 0: the default
}

// take counts one request: until is when all before it count no more. One that is too much is
// refused, and does not count.
func (r rate) take(until, now time.Duration) (time.Duration, bool) {
	if r.most <= 0 {
		return until, true
	}
	if r.burst <= 0 {
		r.burst = defaultBurst
	}
	each := r.within / time.Duration(r.most)
	until = max(until, now)
	if until-now > each*time.Duration(r.most)*time.Duration(r.burst) {
		return until, false
	}
	return until + each, true
}
