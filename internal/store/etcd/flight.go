package etcd

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// lostAfter is how long a write may take for an answer that was sent before the leader
// changed. What was sent to a leader that was gone is lost, and nobody says so.
const lostAfter = 500 * time.Millisecond

// flights are writes that wait for their answers.
type flights struct {
	mu struct {
		sync.Mutex
		list map[*flight]struct{}
	}
}

// flight is a write that waits for its answer.
type flight struct{ cancel context.CancelCauseFunc }

// begin bounds a write by the leader whom it is sent to. The caller calls end when it has
// the answer.
func (f *flights) begin(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	one := &flight{cancel}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.list == nil {
		f.mu.list = map[*flight]struct{}{}
	}
	f.mu.list[one] = struct{}{}
	return ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.mu.list, one)
		cancel(nil)
	}
}

func (f *flights) underWay() []*flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.mu.list))
}

// followLeaders gives up the writes that were sent to leaders of the past, until ctx ends.
func (m *member) followLeaders(ctx context.Context) error {
	for {
		changed := m.srv.LeaderChangedNotify()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
		sent := m.flights.underWay()
		if task.Sleep(ctx, lostAfter) != nil {
			return nil
		}
		for _, one := range sent {
			one.cancel(errNoAnswer) // does nothing if it has its answer
		}
	}
}
