package task

import (
	"context"
	"errors"
	"testing"
)

// TestGroupKnowsWhoFailedFirst and not who, told to end, said why.
func TestGroupKnowsWhoFailedFirst(t *testing.T) {
	broken := errors.New("broken")
	outer := NewGroup(t.Context())
	outer.Go("inner", func(ctx context.Context) error {
		inner := NewGroup(ctx)
		inner.Go("bystander", func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		return inner.Wait()
	})
	outer.Cancel(broken)
	if err := outer.Wait(); err != nil {
		t.Errorf("after Cancel: got %v, want no error: no task has failed", err)
	}

	g := NewGroup(t.Context())
	g.Go("bystander", func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	g.Go("culprit", func(context.Context) error { return broken })
	if err := g.Wait(); !errors.Is(err, broken) || err.Error() != "culprit: broken" {
		t.Errorf("got %v, want culprit: broken", err)
	}
}
