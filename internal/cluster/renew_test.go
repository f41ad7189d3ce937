package cluster

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

func TestEachCertificateIsLookedAtOnceADayWhateverTheOthersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{log: slog.New(slog.DiscardHandler)}
		g := task.NewGroup(t.Context())
		failed, renewed := 0, 0
		g.Go("renew", func(ctx context.Context) error {
			return p.keep(ctx, nil, []func() error{func() error { failed++; return errors.New("full disk") }, func() error { renewed++; return nil }}, nil)
		})
		time.Sleep(49 * time.Hour)
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		if failed != 2 || renewed != 2 {
			t.Errorf("in two days: got %d and %d looks, want 2 of each", failed, renewed)
		}
	})
}
