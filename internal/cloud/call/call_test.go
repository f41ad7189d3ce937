package call

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestCallsEndAndPanicsAreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got, err := Get(t.Context(), "Count", func(context.Context) (int, error) { return 7, nil }); got != 7 || err != nil {
			t.Errorf("got %d, %v, want what the cloud says", got, err)
		}
		broken := errors.New("no quota")
		if err := Do(t.Context(), "Make", func(context.Context) error { return broken }); err != broken {
			t.Errorf("got %v, want the cloud's error as it is", err)
		}
		if err := Do(t.Context(), "Make", func(context.Context) error { panic("out of memory") }); err == nil || !strings.Contains(err.Error(), "panic: out of memory") {
			t.Errorf("got %v of a call that panics", err)
		}
		began := time.Now()
		err := Do(t.Context(), "Make", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if err == nil || !strings.Contains(err.Error(), "the cloud has not answered Make within 1m30s: context deadline exceeded") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v of a call that hangs", err)
		}
		if took := time.Since(began); took != Deadline {
			t.Errorf("a call that hangs: got an end after %s, want %s", took, Deadline)
		}
		// One that says something after all, too late, has said it.
		late := func(context.Context) (int, error) {
			time.Sleep(2 * Deadline)
			return 7, nil
		}
		if got, err := Get(t.Context(), "Count", late); got != 7 || err != nil {
			t.Errorf("got %d, %v of a call that ignores its deadline", got, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(broken)
		if err := Do(ctx, "Make", func(ctx context.Context) error { return ctx.Err() }); !errors.Is(err, broken) {
			t.Errorf("got %v, want why nobody waits any more", err)
		}
	})
}
