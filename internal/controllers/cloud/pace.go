package cloud

import (
	"sync"
	"time"
)

// pace is when each key may ask the cloud again. It may be used concurrently.
type pace struct {
	every       time.Duration // after an answer
	first, last time.Duration // after the first error, and after many: each wait is twice as long as the one before
	mu          struct {
		sync.Mutex
		turns map[string]*turn
	}
}

// turn is how a key has asked.
type turn struct {
	about string // what it asked by: another question need not wait
	next  time.Time
	tries int    // that have failed since one did not
	said  string // by the last of these
}

func newPace(every, first, last time.Duration) *pace {
	p := &pace{every: every, first: first, last: max(first, last)}
	p.mu.turns = map[string]*turn{}
	return p
}

// left is how long a key has to wait; 0 or less: not at all.
func (p *pace) left(key, about string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.mu.turns[key]
	if t == nil || t.about != about {
		return 0
	}
	return time.Until(t.next)
}

// asked notes that a key has asked, and what became of it. It says whether an error is news: not what
// the key was told the last time.
func (p *pace) asked(key, about string, err error) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.mu.turns[key]
	if t == nil || t.about != about || err == nil {
		t = &turn{about: about}
		p.mu.turns[key] = t
	}
	if err == nil {
		t.next = time.Now().Add(p.every)
		return false
	}
	t.next = time.Now().Add(min(p.first<<min(t.tries, 20), p.last))
	t.tries++
	news, t.said = t.said != err.Error(), err.Error()
	return news
}

func (p *pace) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.turns, key)
}

// forgetAllBut forgets the keys that are not among these.
func (p *pace) forgetAllBut(keys map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.mu.turns {
		if !keys[key] {
			delete(p.mu.turns, key)
		}
	}
}
