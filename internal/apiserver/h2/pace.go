package h2

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// To send a thing costs more than to write it. So what happens within a short
// time after a sending is sent together; the more senders are busy, the longer
// that time, so that all of them together do not send more often than the
// machine bears: 64 watches of one busy resource send each 20 ms.
const (
	restAlone = 4 * time.Millisecond
	restEach  = 250 * time.Microsecond // more, for each sender that rests
	restMost  = 100 * time.Millisecond
)

// Pace spreads the sendings of many senders; one that is nil lets all send at once.
// It may be used concurrently.
type Pace struct{ resting atomic.Int64 }

// Rest waits until a sender that sent at the given time had better send again.
// Who has not sent for a while need not wait. It fails when ctx ends.
func (p *Pace) Rest(ctx context.Context, sent time.Time) error {
	if p == nil {
		return nil
	}
	since := time.Since(sent)
	if since >= restMost {
		return nil
	}
	n := p.resting.Add(1)
	defer p.resting.Add(-1)
	rest := min(restAlone+time.Duration(n-1)*restEach, restMost) - since
	if rest <= 0 {
		return nil
	}
	return task.Sleep(ctx, rest)
}
