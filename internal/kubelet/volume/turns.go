package volume

import (
	"context"
	"sync"
)

// turns lets one after the other do something with what has a name.
type turns struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // closed when the turn is over
}

// enter waits for the turn; leave ends it.
func (t *turns) enter(ctx context.Context, name string) (leave func(), err error) {
	for {
		mine := make(chan struct{})
		t.mu.Lock()
		others := t.busy[name]
		if others == nil {
			if t.busy == nil {
				t.busy = map[string]chan struct{}{}
			}
			t.busy[name] = mine
		}
		t.mu.Unlock()
		if others == nil {
			return func() {
				t.mu.Lock()
				delete(t.busy, name)
				t.mu.Unlock()
				close(mine)
			}, nil
		}
		select {
		case <-others:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
