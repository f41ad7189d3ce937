// Package call calls clouds, for whatever loop: a call has a deadline, and one that panics has failed. What a cloud
// is asked for, and what becomes of its answer, is for who asks.
package call

import (
	"context"
	"fmt"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// Deadline bounds one call of a cloud. Making a balancer takes some clouds minutes: a
// reconcile has two of them (controller.Spec), and what has been begun is found by the next.
const Deadline = 90 * time.Second

// Get calls a cloud, and returns what it says. What names the call in errors.
func Get[T any](ctx context.Context, what string, f func(ctx context.Context) (T, error)) (out T, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Deadline, fmt.Errorf("the cloud has not answered %s within %s", what, Deadline))
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

// Do is Get, of a call that says nothing.
func Do(ctx context.Context, what string, f func(ctx context.Context) error) error {
	_, err := Get(ctx, what, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}
