package cloud

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// deadline bounds one call of the cloud. Making a balancer takes some clouds minutes: a
// reconcile has two of them (controller.Spec), and what has been begun is found by the next.
const deadline = 90 * time.Second

// call calls the cloud. A call that panics has failed.
func call[T any](ctx context.Context, what string, f func(ctx context.Context) (T, error)) (out T, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, fmt.Errorf("the cloud has not answered %s within %s", what, deadline))
	defer cancel()
	err = task.Contain(func() error {
		out, err = f(ctx)
		return err
	})
	if err != nil && ctx.Err() != nil {
		return out, fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return out, err
}

// do is call for what returns nothing.
func do(ctx context.Context, what string, f func(ctx context.Context) error) error {
	_, err := call(ctx, what, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// pace is how often each key may ask the cloud. It may be used concurrently.
type pace struct {
	every time.Duration
	mu    struct {
		sync.Mutex
		next map[string]time.Time
	}
}

func newPace(every time.Duration) *pace {
	p := &pace{every: every}
	p.mu.next = map[string]time.Time{}
	return p
}

// left is how long a key has to wait; 0 or less: not at all.
func (p *pace) left(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.mu.next[key])
}

// asked notes that a key has asked.
func (p *pace) asked(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.next[key] = time.Now().Add(p.every)
}

func (p *pace) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.next, key)
}
