package audit

import (
	"context"
	"errors"
	"sync"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kemudi/kemudi/internal/task"
)

// batches tell a backend events some time later, many at a time. An event that finds
// no room among those that wait is lost: no request waits.
type batches struct {
	next  backend
	o     BatchOptions
	queue chan *auditv1.Event
	// aside is how many batches may be on their way at a time; 0: each is waited for by
	// the next.
	aside int
	told  *telling

	ended struct { // nothing comes into the queue any more
		sync.RWMutex
		yes bool
	}
}

var _ backend = (*batches)(nil)

func newBatches(next backend, o BatchOptions, t *telling) *batches {
	return &batches{next: next, o: o, queue: make(chan *auditv1.Event, o.BufferSize), told: t} // as many as may wait
}

var (
	errFull  = errors.New("audit buffer queue blocked")
	errEnded = errors.New("audit backend shut down")
)

// process never fails: what is lost is counted.
func (b *batches) process(events []*auditv1.Event) bool {
	for i, e := range events {
		if err := b.put(e); err != nil {
			b.told.dropped("buffered", len(events)-i, err)
			break
		}
	}
	return true
}

func (b *batches) put(e *auditv1.Event) error {
	b.ended.RLock()
	defer b.ended.RUnlock()
	if b.ended.yes {
		return errEnded
	}
	select {
	case b.queue <- e:
		return nil
	default:
		return errFull
	}
}

// run tells the batches, and in the end, without a pause, what still waits.
func (b *batches) run(ctx context.Context) error {
	g := task.NewGroup(context.WithoutCancel(ctx)) // what is on its way gets there
	places := make(chan struct{}, max(b.aside, 1)) // as many as may be on their way
	var throttle flowcontrol.RateLimiter
	if b.o.ThrottleEnable {
		throttle = flowcontrol.NewTokenBucketRateLimiter(b.o.ThrottleQPS, b.o.ThrottleBurst)
	}
	send := func(events []*auditv1.Event) {
		if throttle != nil {
			_ = throttle.Wait(ctx) // or the server ends: then at once
		}
		if b.aside == 0 {
			b.send(events)
			return
		}
		places <- struct{}{}
		g.Go("batch", func(context.Context) error {
			defer func() { <-places }()
			b.send(events)
			return nil
		})
	}
	for ctx.Err() == nil {
		if events := b.collect(ctx); len(events) > 0 {
			send(events)
		}
	}
	b.ended.Lock()
	b.ended.yes = true
	b.ended.Unlock()
	for events := b.collect(ctx); len(events) > 0; events = b.collect(ctx) {
		send(events)
	}
	return g.Wait()
}

// send tells a batch. A panic is that batch's affair.
func (b *batches) send(events []*auditv1.Event) {
	err := task.Contain(func() error {
		b.next.process(events)
		return nil
	})
	if err != nil {
		b.told.dropped("buffered", len(events), err)
	}
}

// collect waits for an event and, some time, for more. When ctx has ended it takes what
// is there.
func (b *batches) collect(ctx context.Context) []*auditv1.Event {
	var events []*auditv1.Event
	var due <-chan time.Time
	for len(events) < b.o.MaxSize {
		select {
		case e := <-b.queue:
			events = append(events, e)
			continue
		default:
		}
		if ctx.Err() != nil {
			return events
		}
		if len(events) > 0 && due == nil {
			timer := time.NewTimer(b.o.MaxWait)
			defer timer.Stop()
			due = timer.C
		}
		select {
		case e := <-b.queue:
			events = append(events, e)
		case <-due:
			return events
		case <-ctx.Done():
		}
	}
	return events
}
