package leader

import (
	"context"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/kemudi/kemudi/internal/store/fence"
)

// term is a time for which this process leads, without a break.
type term struct {
	lease *coordinationv1.Lease // as it was last written; belongs to the goroutine of Run. nil: it has none yet
	hold  *fence.Hold           // on which all writes depend
	over  chan struct{}         // closed when the term has ended

	running sync.WaitGroup // those that run
	mu      struct {
		sync.Mutex
		why  error // the term has ended; nil: it goes on
		runs map[*context.CancelCauseFunc]struct{}
	}
}

func newTerm() *term {
	t := &term{hold: fence.NewHold(), over: make(chan struct{})}
	t.mu.runs = map[*context.CancelCauseFunc]struct{}{}
	return t
}

// end tells all that runs to end, and why (L1).
func (t *term) end(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.why != nil {
		return
	}
	t.mu.why = why
	close(t.over)
	for cancel := range t.mu.runs {
		(*cancel)(why)
	}
}

// ended says that the term is over.
func (t *term) ended() bool {
	select {
	case <-t.over:
		return true
	default:
		return false
	}
}

// run runs f until it returns, with a context that ends with the term. What f returns of
// a term that is over counts for nothing.
func (t *term) run(ctx context.Context, f func(ctx context.Context) error) (over bool, _ error) {
	ctx, cancel := context.WithCancelCause(fence.With(ctx, t.hold)) // L2
	defer cancel(context.Canceled)
	if !t.join(&cancel) {
		return true, nil
	}
	defer t.leave(&cancel)
	err := f(ctx)
	if t.ended() {
		return true, nil
	}
	return false, err
}

func (t *term) join(cancel *context.CancelCauseFunc) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.why != nil {
		return false
	}
	t.mu.runs[cancel] = struct{}{}
	t.running.Add(1)
	return true
}

func (t *term) leave(cancel *context.CancelCauseFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mu.runs, cancel)
	t.running.Done()
}
