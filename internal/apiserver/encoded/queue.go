package encoded

import (
	"sync"
	"time"
	"weak"
)

// queue is a number of encodings, the oldest first, that may take up to limit bytes.
type queue struct {
	limit int64
	// stale, if set, says what need not be kept although there is room.
	stale func(*encoding) bool

	mu struct {
		sync.Mutex
		used int64
		kept []kept // the oldest is at next
		next int
		// swept are those that sweep took out, for the next push to drop.
		swept []kept
		at    time.Time // of the last sweep
	}
}

// kept is an encoding in a queue. It does not keep the item alive.
type kept struct {
	e     weak.Pointer[encoding]
	size  int
	since time.Time
}

// add puts an encoding at the end, and drops those at the front that are stale or
// for which there is no room now.
func (q *queue) add(e *encoding, size int, drop func(*encoding)) {
	for _, d := range q.push(e, size) {
		if old := d.e.Value(); old != nil {
			drop(old)
		}
	}
}

func (q *queue) push(e *encoding, size int) (dropped []kept) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.used += int64(size)
	q.mu.kept = append(q.mu.kept, kept{weak.Make(e), size, time.Now()})
	dropped, q.mu.swept = q.mu.swept, nil
	for q.mu.next < len(q.mu.kept)-1 {
		old := q.mu.kept[q.mu.next]
		if q.mu.used <= q.limit && !q.isStale(old) {
			break
		}
		q.mu.kept[q.mu.next] = kept{}
		q.mu.next++
		q.mu.used -= int64(old.size)
		dropped = append(dropped, old)
	}
	if q.mu.next > len(q.mu.kept)/2 && q.mu.next > 1024 {
		q.mu.kept = append(q.mu.kept[:0], q.mu.kept[q.mu.next:]...)
		q.mu.next = 0
	}
	return dropped
}

// empty takes out all.
func (q *queue) empty() []kept {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.mu.kept[q.mu.next:]
	q.mu.kept, q.mu.next, q.mu.used = nil, 0, 0
	return all
}

func (q *queue) isStale(k kept) bool {
	if q.stale == nil {
		return false
	}
	e := k.e.Value()
	return e == nil || q.stale(e)
}

// A list of everything would push out what the next one needs first. So a list
// adds to what is kept only while there is room, or in the place of what was
// made some time ago.
const (
	roomy = 256 << 10
	aged  = 30 * time.Second
	// sweepPause is how far apart two looks at all that is kept are at least.
	sweepPause = 2 * time.Second
)

// full reports that a list had better not have its encodings kept.
func (q *queue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fullLocked() && time.Since(q.mu.at) >= sweepPause {
		q.sweepLocked()
	}
	return q.fullLocked()
}

func (q *queue) fullLocked() bool {
	return q.mu.used+roomy >= q.limit && q.mu.next < len(q.mu.kept) && time.Since(q.mu.kept[q.mu.next].since) < aged
}

// sweepLocked takes out what is stale, wherever it is: behind a few that are asked for still
// there may be the former states of many objects, which take no memory any more or soon
// will not. The caller may have locked an encoding, so that nothing is dropped here.
func (q *queue) sweepLocked() {
	q.mu.at = time.Now()
	good := q.mu.kept[:0]
	for _, k := range q.mu.kept[q.mu.next:] {
		if q.isStale(k) {
			q.mu.used -= int64(k.size)
			q.mu.swept = append(q.mu.swept, k)
		} else {
			good = append(good, k)
		}
	}
	clear(q.mu.kept[len(good):])
	q.mu.kept, q.mu.next = good, 0
}
