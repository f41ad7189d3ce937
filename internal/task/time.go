package task

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d or until ctx ends, and then gives the context's error.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Backoff yields growing waits: Initial, then twice as long each time up to
// Max, each made longer by a random part of up to Jitter (0.1 is 10 %).
// It is not safe for concurrent use.
type Backoff struct {
	Initial, Max time.Duration
	Jitter       float64

	next time.Duration
}

// Next returns how long to wait before the next try.
func (b *Backoff) Next() time.Duration {
	d := max(b.next, b.Initial)
	b.next = min(2*d, b.Max)
	if b.Jitter > 0 {
		d += time.Duration(rand.Float64() * b.Jitter * float64(d))
	}
	return d
}

// Reset starts again at Initial; call it after a success.
func (b *Backoff) Reset() { b.next = 0 }
