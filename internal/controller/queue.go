package controller

import (
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/cache"
)

// Delays after errors grow from firstRetry, twice as long each time, to lastRetry.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 5 * time.Minute
)

// behind is how many keys that have changed go before one that waits behind such.
const behind = 4

// queue holds the keys to reconcile. A key is in one place at a time: waiting
// for its turn, being worked on, parked behind the barrier, or delayed.
//
// Keys of the first state of an input, of which there are many at once, wait apart, and so do those that
// are to wait behind others: what changes meanwhile goes before them (C11).
//
// A worker begins when there are more keys than workers that are about to take one,
// up to the queue's number of them, and ends when it finds none: what waits for
// nothing costs no goroutine.
type queue struct {
	m     *keyMetrics
	begin func() // starts a worker; called with mu held
	mu    struct {
		sync.Mutex
		keys    map[string]*entry
		fresh   []string // keys that wait because something has changed
		first   []string // and behind these; some of them do not wait any more
		waiting int      // keys, in both
		passed  int      // fresh ones since the last of the others was taken
		free    int      // workers that may yet begin
		eager   int      // workers that will call take next
		ended   bool
	}
}

// line is where a key waits for its turn.
type line int

const (
	nowhere line = iota
	inFirst
	inFresh
)

type entry struct {
	queued   line
	since    time.Time   // when it began to wait
	working  bool        // a worker has it (C1)
	parked   int         // feeds that have not shown what the last reconcile wrote (C3), and its cooldown (C10)
	dirty    bool        // wanted again when working or parked ends (C2)
	tries    int         // errors in a row
	timer    *time.Timer // ends the delay; nil: there is none
	cooldown *time.Timer // ends the cooldown; nil: there has been none
}

func newQueue(m *keyMetrics) *queue {
	q := &queue{m: m}
	q.mu.keys = map[string]*entry{}
	return q
}

// open lets up to n workers begin; until then keys wait.
func (q *queue) open(n int, begin func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begin, q.mu.free = begin, n
	for range q.mu.waiting {
		q.beginLocked()
	}
}

// beginLocked starts a worker if one more is of use.
func (q *queue) beginLocked() {
	if q.mu.eager < q.mu.waiting && q.mu.free > 0 {
		q.mu.free--
		q.mu.eager++
		q.begin()
	}
}

// add asks for the key to be reconciled: it waits where it is told to.
func (q *queue) add(where line, key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addLocked(where, key)
}

func (q *queue) addLocked(where line, key string) {
	if q.mu.ended {
		return
	}
	e := q.entryLocked(key)
	switch {
	case e.queued == inFirst && where == inFresh:
		e.queued = inFresh
		q.mu.fresh = append(q.mu.fresh, key)
	case e.queued != nowhere:
	case e.working || e.parked > 0:
		e.dirty = true
	default:
		if e.timer != nil && e.tries == 0 { // a change ends a delay that is not a back-off
			e.timer.Stop()
			e.timer = nil
		}
		e.queued, e.since = where, time.Now()
		if where == inFirst {
			q.mu.first = append(q.mu.first, key)
		} else {
			q.mu.fresh = append(q.mu.fresh, key)
		}
		q.mu.waiting++
		q.m.wait(1)
		q.beginLocked()
	}
}

func (q *queue) entryLocked(key string) *entry {
	e := q.mu.keys[key]
	if e == nil {
		e = &entry{}
		q.mu.keys[key] = e
	}
	return e
}

// take gives a worker the key whose turn it is: the worker calls done, and take again.
// Without a key the worker has to end.
func (q *queue) take() (string, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.eager--
	if q.mu.waiting == 0 {
		q.mu.free++
		return "", false
	}
	key := q.nextLocked()
	q.mu.waiting--
	e := q.mu.keys[key]
	q.m.took(e.since)
	e.queued, e.working = nowhere, true
	return key, true
}

// nextLocked takes the key whose turn it is from where it waits; there is one.
func (q *queue) nextLocked() (key string) {
	for len(q.mu.first) > 0 && !q.waitsLocked(q.mu.first[0]) {
		q.mu.first = q.mu.first[1:]
	}
	if len(q.mu.fresh) > 0 && (q.mu.passed < behind || len(q.mu.first) == 0) {
		q.mu.passed++
		key, q.mu.fresh = q.mu.fresh[0], q.mu.fresh[1:]
		return key
	}
	q.mu.passed = 0
	key, q.mu.first = q.mu.first[0], q.mu.first[1:]
	if len(q.mu.first) == 0 {
		q.mu.first = nil // there will hardly be as many again
	}
	return key
}

// waitsLocked says that a key of first has neither changed nor been taken meanwhile.
func (q *queue) waitsLocked(key string) bool {
	e := q.mu.keys[key]
	return e != nil && e.queued == inFirst
}

// result is how the work on a key ended.
type result struct {
	after    time.Duration             // the delay after which to look again; 0: do not
	behind   bool                      // it waits behind what has changed then
	failed   bool                      // look again after a delay that grows
	cooldown time.Duration             // how long not to look, whatever happens (C10)
	wrote    map[*cache.Progress]int64 // what the feeds have to show before
}

// done ends the work on a key. It is looked at again when it was changed
// meanwhile, or as the result says.
func (q *queue) done(key string, r result) {
	delay, where := r.after, inFresh
	if r.behind && !r.failed {
		where = inFirst
	}
	q.mu.Lock()
	q.mu.eager++
	e := q.mu.keys[key]
	e.working = false
	e.parked = len(r.wrote)
	if r.failed {
		delay = backOff(e.tries)
		e.tries++
	} else {
		e.tries = 0
	}
	q.delayLocked(key, delay, where)
	if r.cooldown > 0 && !q.mu.ended {
		e.parked++
		e.cooldown = time.AfterFunc(r.cooldown, func() { q.unpark(key) })
	}
	q.releaseLocked(key, e)
	q.mu.Unlock()
	for p, rev := range r.wrote {
		p.Notify(rev, func() { q.unpark(key) })
	}
}

func backOff(tries int) time.Duration {
	if tries > 20 {
		return lastRetry
	}
	return min(firstRetry<<tries, lastRetry)
}

func (q *queue) unpark(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.mu.keys[key]; e != nil && e.parked > 0 {
		e.parked--
		q.releaseLocked(key, e)
	}
}

// releaseLocked queues a key that was wanted meanwhile, or forgets an idle one.
func (q *queue) releaseLocked(key string, e *entry) {
	if e.parked > 0 || e.working || e.queued != nowhere {
		return
	}
	if e.dirty {
		e.dirty = false
		q.addLocked(inFresh, key)
	} else if e.timer == nil && e.tries == 0 {
		delete(q.mu.keys, key)
	}
}

// delayLocked has a key that there is looked at again after a delay, which replaces an earlier one;
// 0: it is not.
func (q *queue) delayLocked(key string, delay time.Duration, where line) {
	e := q.mu.keys[key]
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
	if delay <= 0 || q.mu.ended {
		return
	}
	e.timer = time.AfterFunc(delay, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		e.timer = nil
		q.addLocked(where, key)
	})
}

// end drops all keys and timers; later adds are ignored, and no worker begins.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.ended = true
	for _, e := range q.mu.keys {
		if e.timer != nil {
			e.timer.Stop()
		}
		if e.cooldown != nil {
			e.cooldown.Stop()
		}
	}
	q.m.wait(-q.mu.waiting)
	q.mu.fresh, q.mu.first, q.mu.waiting = nil, nil, 0
}
