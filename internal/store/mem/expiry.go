package mem

import (
	"container/heap"
	"time"

	"github.com/kemudi/kemudi/internal/store"
)

// expiry says that a key ends at a time, if it was not written again since.
type expiry struct {
	at  time.Time
	key string
	rev int64
}

// expiryHeap has the earliest expiry at index 0.
type expiryHeap []expiry

var _ heap.Interface = (*expiryHeap)(nil)

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h expiryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

func (h *expiryHeap) Push(x any) { *h = append(*h, x.(expiry)) }

func (h *expiryHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

func (s *Store) expireLocked(key string, rev int64, ttl time.Duration) {
	heap.Push(&s.mu.expiry, expiry{time.Now().Add(ttl), key, rev})
	s.armLocked()
}

// armLocked sets the timer to the earliest expiry.
func (s *Store) armLocked() {
	if len(s.mu.expiry) == 0 {
		return
	}
	d := time.Until(s.mu.expiry[0].at)
	if s.mu.timer == nil {
		s.mu.timer = time.AfterFunc(d, s.expire)
		return
	}
	s.mu.timer.Reset(d)
}

// expire deletes, in one revision, all keys whose time has come.
func (s *Store) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var ops []store.Op
	for len(s.mu.expiry) > 0 && !s.mu.expiry[0].at.After(now) {
		x := heap.Pop(&s.mu.expiry).(expiry)
		if s.nowLocked(x.key).Rev == x.rev {
			ops = append(ops, store.Op{Key: x.key})
		}
	}
	s.writeLocked(ops)
	s.armLocked()
}

// keepLocked has the write of a key at revision rev end when that at revision was does.
func (s *Store) keepLocked(key string, was, rev int64) {
	for i := range s.mu.expiry {
		if x := &s.mu.expiry[i]; x.key == key && x.rev == was {
			x.rev = rev
		}
	}
	for _, l := range s.mu.lives {
		if at, ok := l.keys[key]; ok && at == was {
			l.keys[key] = rev
		}
	}
}
