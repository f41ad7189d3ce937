package sim

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
)

// Mortal is a control plane without nodes that tests kill and start again. Its store
// takes its time before and after each write, so that it is killed between any two
// writes, or before it hears of one.
type Mortal struct {
	*plane.Plane     // the one that lives
	Kills        int // how often it was killed

	t     *testing.T
	store *Slow
	stop  func()
}

// NewMortal starts one, which is killed when the test ends.
func NewMortal(t *testing.T, rng *rand.Rand) *Mortal {
	t.Helper()
	m := &Mortal{t: t, store: NewSlow(mem.New(mem.Options{}), rng.Uint64())}
	m.start()
	t.Cleanup(func() { m.stop() })
	return m
}

// Kill kills it, and starts another that knows only what is stored.
func (m *Mortal) Kill() {
	m.t.Helper()
	m.stop()
	m.Kills++
	m.start()
}

func (m *Mortal) start() {
	m.t.Helper()
	plane, err := plane.New(plane.Options{Store: m.store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		m.t.Fatal(err)
	}
	g := task.NewGroup(m.t.Context())
	g.Go("control plane", plane.Run)
	m.Plane = plane
	m.stop = func() {
		g.Cancel(errKilled)
		if err := g.Wait(); err != nil && !errors.Is(err, errKilled) && !errors.Is(err, context.Canceled) {
			m.t.Error(err)
		}
	}
	select {
	case <-plane.Ready():
	case <-g.Context().Done():
		m.t.Fatal(g.Wait())
	}
}
