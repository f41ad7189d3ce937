package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
)

// slowest is how long a slow store takes before, and after, a write at most.
const slowest = 3 * time.Millisecond

// Slow is a store that takes its time before and after each write, so that whoever
// is killed is killed between two writes, or before it hears of one.
type Slow struct {
	store.Store
	mu  sync.Mutex
	rng *rand.Rand
}

// NewSlow returns a store whose delays are by chance.
func NewSlow(s store.Store, seed uint64) *Slow {
	return &Slow{Store: s, rng: rand.New(rand.NewPCG(seed, 0))}
}

// Txn is the store's, slowly.
func (s *Slow) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if err := s.pause(ctx); err != nil {
		return store.TxnResult{}, err
	}
	res, err := s.Store.Txn(ctx, t)
	return res, errors.Join(err, s.pause(ctx))
}

func (s *Slow) pause(ctx context.Context) error {
	s.mu.Lock()
	d := time.Duration(s.rng.Int64N(int64(slowest)))
	s.mu.Unlock()
	return task.Sleep(ctx, d)
}
