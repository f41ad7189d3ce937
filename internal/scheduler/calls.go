package scheduler

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/task"
)

// callsAtOnce bounds the calls under way; callsWaiting how many more may wait
// before no further pod is tried.
const (
	callsAtOnce  = 128
	callsWaiting = 256
	callDeadline = 30 * time.Second
)

// callKind tells calls about one pod apart.
type callKind int

// The kinds.
const (
	stateCall callKind = iota // says in the pod's status how things are; only the last one matters
	bindCall                  // what was said before does not matter any more
	evictCall
	askCall // an extender's answer is waited for
	callKinds
)

// String is the name of a kind of calls in metrics, upstream's; empty: there is none.
func (k callKind) String() string {
	switch k {
	case stateCall:
		return "pod_status_patch"
	case bindCall:
		return "pod_binding"
	}
	return ""
}

// call is something to be written through the API.
type call struct {
	pod  types.UID
	kind callKind
	do   func(ctx context.Context) error // runs beside the scheduler: it must not touch its state
	then func(err error)                 // runs in the scheduler's turn
	// limit is how long it may take; 0: callDeadline.
	limit time.Duration
	few   *few // it is one of; nil: of none
	err   error
	took  time.Duration // once it is done
}

// few is calls of which no more than some are under way at once.
type few struct {
	free int
	rest []*call // to be added when others are done
}

// calls runs calls beside the scheduler, for one pod one after the other (B2).
type calls struct {
	group   *task.Group
	byPod   map[types.UID][]*call // the first is under way or ready
	ready   []*call               // to be started, first come first served
	running int
	waiting [callKinds]int // in byPod, and not under way
	answers chan *call     // buffered for all that run, so that none waits
	done    func(x *call)  // is told of each that has come back; nil: nobody is
}

func newCalls(g *task.Group) *calls {
	return &calls{group: g, byPod: map[types.UID][]*call{}, answers: make(chan *call, callsAtOnce)}
}

// full says that no more work should be started that leads to calls.
func (c *calls) full() bool { return len(c.ready) >= callsWaiting }

// add starts a call, now or when it may.
func (c *calls) add(x *call) {
	if x.few != nil {
		if x.few.free == 0 {
			x.few.rest = append(x.few.rest, x)
			return
		}
		x.few.free--
	}
	c.put(x)
}

// put is add without regard to what the call is one of.
func (c *calls) put(x *call) {
	before := c.byPod[x.pod]
	if len(before) > 1 && (x.kind == stateCall || x.kind == bindCall) { // keep the one under way, and what must not be lost
		kept := append(before[:1:1], slices.DeleteFunc(slices.Clone(before[1:]), func(b *call) bool { return b.kind == stateCall })...)
		c.waiting[stateCall] -= len(before) - len(kept)
		before = kept
	}
	c.waiting[x.kind]++
	c.byPod[x.pod] = append(before, x)
	if len(before) == 0 {
		c.ready = append(c.ready, x)
		c.start()
	}
}

func (c *calls) start() {
	for c.running < callsAtOnce && len(c.ready) > 0 {
		x := c.ready[0]
		c.ready[0] = nil
		c.ready = c.ready[1:]
		c.running++
		c.waiting[x.kind]--
		c.group.Go("call", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, cmp.Or(x.limit, callDeadline))
			defer cancel()
			began := time.Now()
			x.err = x.do(ctx)
			x.took = time.Since(began)
			c.answers <- x
			return nil
		})
	}
}

// answer takes in an answer.
func (c *calls) answer(x *call) {
	c.running--
	if c.done != nil {
		c.done(x)
	}
	if rest := c.byPod[x.pod][1:]; len(rest) > 0 {
		c.byPod[x.pod] = rest
		c.ready = append(c.ready, rest[0])
	} else {
		delete(c.byPod, x.pod)
	}
	if x.few != nil {
		x.few.free++
		if rest := x.few.rest; len(rest) > 0 {
			x.few.rest = rest[1:]
			c.add(rest[0])
		}
	}
	c.start()
	x.then(x.err)
}
