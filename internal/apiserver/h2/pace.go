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
// machine bears: 64 connections that watch one busy resource send each 20 ms.
const (
	restAlone = 4 * time.Millisecond
	restEach  = 250 * time.Microsecond // more, for each sender that rests
	restMost  = 100 * time.Millisecond
)

// Pace spreads the sendings of many senders, each a connection or a watch that is
// sent by itself; one that is nil lets all send at once. It may be used concurrently.
type Pace struct{ resting atomic.Int64 }

// Rest waits until a sender that sent at the given time had better send again.
// Who has not sent for a while need not wait. It fails when ctx ends.
func (p *Pace) Rest(ctx context.Context, sent time.Time) error {
	d := p.begin(sent)
	if d <= 0 {
		return nil
	}
	defer p.end()
	return task.Sleep(ctx, d)
}

// begin returns how long a sender that sent at the given time rests. If that is any
// time, end must be called after it.
func (p *Pace) begin(sent time.Time) time.Duration {
	if p == nil {
		return 0
	}
	since := time.Since(sent)
	if since >= restMost {
		return 0
	}
	n := p.resting.Add(1)
	rest := min(restAlone+time.Duration(n-1)*restEach, restMost) - since
	if rest <= 0 {
		p.end()
	}
	return rest
}

func (p *Pace) end() {
	if p != nil {
		p.resting.Add(-1)
	}
}
