package flow

import (
	"slices"
	"time"

	"k8s.io/apiserver/pkg/util/shufflesharding"
)

// firstAverage is how long a request is taken to run before any has.
const firstAverage = 0.003 // seconds

// level is a priority level. All but its name, and whether it is exempt, is guarded by the lock of its
// Control; uid and widest change with the configuration alone.
type level struct {
	name   string
	exempt bool
	uid    []string

	nominal int                     // seats that its shares come to
	kept    int                     // of those: what it does not lend
	most    int                     // seats that it may have with what it borrows
	widest  int                     // seats of one request
	deck    *shufflesharding.Dealer // of queues; nil: nobody waits
	count   int                     // of queues
	length  int                     // of a queue
	leaving bool                    // it is in no configuration any more

	used    int            // seats
	held    map[uint64]int // seats, by flow
	waiting int            // requests
	queues  map[int]*queue // those in which somebody waits, or that have had more than others
	// wide: who is next needs more seats than are free, and nobody goes before.
	wide    bool
	served  float64 // of whose turn it was last
	average float64 // seconds that a request takes
}

// queue is a line of requests.
type queue struct {
	at     int // in the deck
	line   []*place
	served float64 // seats times seconds that it has had

	running, seats int // requests that came from it, and what they have
}

// place is one request that waits.
type place struct {
	flow  Flow
	seats int
	queue *queue
	ready chan struct{} // closed when the seats are its own
	guess float64       // what was taken for its cost
	about Request       // for people
	came  time.Time
}

// join puts a request into the shortest of the queues that its flow is dealt; nil: it is full.
func (l *level) join(f Flow, seats int) *place {
	at, least := -1, 0
	l.deck.Deal(f.hash, func(card int) {
		n := 0
		if q := l.queues[card]; q != nil {
			n = len(q.line)
		}
		if at < 0 || n < least {
			at, least = card, n
		}
	})
	if least >= l.length {
		return nil
	}
	q := l.queues[at]
	if q == nil {
		q = &queue{at: at}
		l.queues[at] = q
	}
	if len(q.line) == 0 {
		q.served = max(q.served, l.served)
	}
	p := &place{flow: f, seats: seats, queue: q, ready: make(chan struct{})}
	q.line = append(q.line, p)
	l.waiting++
	return p
}

// leave takes a request out of its queue; false: it has got its seats.
func (l *level) leave(p *place) bool {
	if !slices.Contains(p.queue.line, p) {
		return false
	}
	p.queue.line = slices.DeleteFunc(p.queue.line, func(other *place) bool { return other == p })
	l.waiting--
	l.wide = l.wide && l.waiting > 0
	l.tidy(p.queue)
	return true
}

// tidy forgets a queue that owes nothing.
func (l *level) tidy(q *queue) {
	if len(q.line) == 0 && q.served <= l.served {
		delete(l.queues, q.at)
	}
}

// next is whose turn it is, when so many seats are free; nil: nobody's (F3, F4).
func (l *level) next(free int) *place {
	var best *place
	for _, q := range l.queues {
		i := slices.IndexFunc(q.line, func(p *place) bool { // whose flow has not its share yet
			held := l.held[p.flow.hash]
			return held == 0 || held+p.seats <= free
		})
		if i < 0 {
			continue
		}
		p := q.line[i]
		if best == nil || q.served < best.queue.served || q.served == best.queue.served && q.at < best.queue.at {
			best = p
		}
	}
	l.wide = best != nil && best.seats > free
	if l.wide {
		return nil
	}
	return best
}

// dispatch takes p from its queue.
func (l *level) dispatch(p *place) {
	q := p.queue
	q.line = slices.DeleteFunc(q.line, func(other *place) bool { return other == p })
	l.waiting--
	l.served = max(l.served, q.served)
	p.guess = float64(p.seats) * l.average
	q.running, q.seats = q.running+1, q.seats+p.seats
	q.served += p.guess
	close(p.ready)
}

// ended takes in how long a request has run, for which a guess stands in the books of q.
func (l *level) ended(h *Held, took time.Duration) {
	const weight = 0.05 // of the newest
	l.average += weight * (took.Seconds() - l.average)
	if q := h.queue; q != nil {
		q.served += float64(h.seats)*took.Seconds() - h.guess
		q.running, q.seats = q.running-1, q.seats-h.seats
		l.tidy(q)
	}
}

// rest forgets who has had more than others, when nobody runs and nobody waits.
func (l *level) rest() {
	if l.used == 0 && l.waiting == 0 && len(l.queues) > 0 {
		clear(l.queues)
		l.served = 0
	}
}
