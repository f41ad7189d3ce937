// Package wait has the loop by which tests with real time wait for what must
// come about. It is for tests only. Who can be told waits for that instead: of a
// watch, a revision, the output of a program, the end of a process.
package wait

import (
	"testing"
	"time"
)

// Patience is how long a test waits for what must come about. It only ends hangs:
// how fast something is depends on what else the machine does, and is measured by
// make bench.
const Patience = 4 * time.Minute

// least is how long to wait at least before the next look.
const least = 20 * time.Millisecond

// Until waits until f returns no error, or fails the test with its last one.
func Until(t testing.TB, f func() error) {
	t.Helper()
	if err := Try(Patience, f); err != nil {
		t.Fatalf("still after %s: %v", Patience, err)
	}
}

// Try calls f until it returns no error, for so long, and returns the last one.
// It waits as long as f takes between two calls, so that looking does not slow down what is looked at.
func Try(long time.Duration, f func() error) error {
	over := time.After(long)
	for {
		began := time.Now()
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(max(least, time.Since(began))):
		case <-over:
			return err
		}
	}
}
