// Package backoff says how long a node waits before it tries again what has not
// worked: one rule, and one table of durations. Who counts failures, and who
// waits, is the business of others.
package backoff

import "time"

// Backoff is a wait of First after the first failure in a row, doubled for each
// further one, of Most at most.
type Backoff struct{ First, Most time.Duration }

// The table. A restart has no wait after a container's first exit, and begins
// with First after the second one.
var (
	Restart = Backoff{10 * time.Second, 5 * time.Minute} // of a container that exits again and again
	Pull    = Backoff{10 * time.Second, 5 * time.Minute} // of an image, by pod
	Start   = Backoff{time.Second, 2 * time.Minute}      // of a sandbox, of volumes, of a container that does not come up, of a resize
	Refresh = Backoff{time.Minute, time.Minute}          // of volumes in use, which keep what they held
	Plugin  = Backoff{time.Second / 10, time.Minute}     // of a plugin that cannot be registered, as while it begins
	Slices  = Backoff{time.Second, 5 * time.Minute}      // of the deletion of resource slices of a driver that is gone
	Call    = Backoff{time.Second, time.Minute}          // of anything else that the runtime or the API is asked for, mirrors among it
)

// Next is the wait after one of last; zero: there was none.
func (b Backoff) Next(last time.Duration) time.Duration {
	return min(max(b.First, 2*last), b.Most)
}

// After is the wait after so many failures in a row; none after none.
func (b Backoff) After(failures int) (wait time.Duration) {
	for ; failures > 0 && wait < b.Most; failures-- {
		wait = b.Next(wait)
	}
	return wait
}
