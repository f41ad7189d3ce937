package sim

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/store"
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
	store *slow
	stop  func()
}

// NewMortal starts one, which is killed when the test ends.
func NewMortal(t *testing.T, rng *rand.Rand) *Mortal {
	t.Helper()
	m := &Mortal{t: t, store: &slow{Store: mem.New(mem.Options{}), rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}}
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

// slow is a store that takes its time.
type slow struct {
	store.Store
	mu  sync.Mutex
	rng *rand.Rand
}

func (s *slow) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if err := s.pause(ctx); err != nil {
		return store.TxnResult{}, err
	}
	res, err := s.Store.Txn(ctx, t)
	return res, errors.Join(err, s.pause(ctx))
}

func (s *slow) pause(ctx context.Context) error {
	s.mu.Lock()
	d := time.Duration(s.rng.IntN(3000)) * time.Microsecond
	s.mu.Unlock()
	return task.Sleep(ctx, d)
}
