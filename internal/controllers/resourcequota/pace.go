package resourcequota

import (
	"sync"
	"time"
)

// share is how much longer than a count the time to the next count of the same
// quota is, so that a namespace of many objects that come and go does not keep a
// processor busy; longest is the most that it is.
const (
	share   = 20
	longest = time.Second
)

// paces are until when quotas are not to be counted again. The zero value is none.
type paces struct {
	mu struct {
		sync.Mutex
		until map[string]time.Time
	}
}

// left is how long a quota is not to be counted yet.
func (p *paces) left(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.mu.until[key])
}

// took notes how long a count has taken.
func (p *paces) took(key string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.until == nil {
		p.mu.until = map[string]time.Time{}
	}
	p.mu.until[key] = time.Now().Add(min(share*d, longest))
}

// forget drops a quota that is gone.
func (p *paces) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.until, key)
}
