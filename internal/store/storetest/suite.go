package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/store"
)

// Run runs the suite. open returns an empty store that lives until t ends; it
// is called once for each test.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s store.Store)
	}{
		{"A key that does not exist has revision 0", missingKey},
		{"Writes are read back with their revision", readBack},
		{"The store's revision is that of the last write answered", revisionIsFresh},
		{"S1 Revisions grow by transaction", revisionsGrow},
		{"S3 A list shows the state at the revision asked for", listAtRevision},
		{"S3 A random history reads the same at every revision", randomHistory},
		{"S4 A failed condition changes nothing and tells the present state", failedCondition},
		{"A condition on absence creates a key once", createOnce},
		{"Pages follow each other at one revision", paging},
		{"A revision in the future is refused", future},
		{"Transactions that are too large or write a key twice are refused", badTransactions},
		{"S2 The feed has every change in order and never splits a revision", feedOrder},
		{"S2 A feed resumes without loss or repetition", feedResume},
		{"The feed tells deletions from empty values", feedDeletes},
		{"The feed's progress passes writes elsewhere", feedProgress},
		{"Steady writes elsewhere do not hold up the feed's progress", feedProgressUnderLoad},
		{"A feed ends with its context and with its function's error", feedEnds},
		{"S5 Compacted revisions are refused", compaction},
		{"Keys with a time to live expire", expiry},
		{"Writing a key again ends its time to live", expiryRenewed},
		{"Keys with a life are there as long as it is renewed", lives},
		{"A life that is ended takes its keys along, but for those written again", livesEnd},
		{"Concurrent counters lose no step and feeds see each", concurrency},
		{"A cancelled context is respected", cancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t))
		})
	}
}

// timeout bounds every wait of the suite.
const timeout = 30 * time.Second

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errors.New("the suite's time is over"))
	t.Cleanup(cancel)
	return ctx
}

func mustTxn(t *testing.T, s store.Store, txn store.Txn) int64 {
	t.Helper()
	r, err := s.Txn(within(t), txn)
	if err != nil {
		t.Fatalf("Txn(%s): %v", show(txn), err)
	}
	if !r.OK {
		t.Fatalf("Txn(%s): conditions did not hold, now %v", show(txn), r.Now)
	}
	return r.Rev
}

func mustPut(t *testing.T, s store.Store, key, value string) int64 {
	t.Helper()
	return mustTxn(t, s, store.Txn{Ops: []store.Op{put(key, value)}})
}

func mustDelete(t *testing.T, s store.Store, key string) int64 {
	t.Helper()
	return mustTxn(t, s, store.Txn{Ops: []store.Op{{Key: key}}})
}

func mustList(t *testing.T, s store.Store, prefix string, o store.ListOptions) store.Page {
	t.Helper()
	p, err := s.List(within(t), prefix, o)
	if err != nil {
		t.Fatalf("List(%q, %+v): %v", prefix, o, err)
	}
	return p
}

func put(key, value string) store.Op { return store.Op{Key: key, Value: []byte(value)} }

func show(t store.Txn) string {
	s := "if"
	for _, c := range t.Conds {
		s += fmt.Sprintf(" %s@%d", c.Key, c.Rev)
	}
	s += " then"
	for _, o := range t.Ops {
		s += fmt.Sprintf(" %s=%.20q", o.Key, o.Value)
	}
	return s
}

// text is the state as "key=value@rev ...".
func text(kvs []store.KV) string {
	s := ""
	for _, kv := range kvs {
		s += fmt.Sprintf("%s=%s@%d ", kv.Key, kv.Value, kv.Rev)
	}
	return s
}

// feed is what one Watch delivered.
type feed struct {
	changes  []store.Change
	progress int64
}

// watchUntil follows the feed until done says so.
func watchUntil(t *testing.T, s store.Store, prefix string, after int64, done func(f *feed) bool) *feed {
	t.Helper()
	f := &feed{progress: after}
	enough := errors.New("enough")
	err := s.Watch(within(t), prefix, after, func(changes []store.Change, progress int64) error {
		if progress < f.progress {
			t.Errorf("progress went from %d back to %d", f.progress, progress)
		}
		last := f.progress
		for _, c := range changes {
			if c.Rev <= f.progress || c.Rev > progress || c.Rev < last {
				t.Errorf("change of %s at %d in a batch from %d to %d, after one at %d", c.Key, c.Rev, f.progress, progress, last)
			}
			last = c.Rev
		}
		f.changes = append(f.changes, changes...)
		f.progress = progress
		if done(f) {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatalf("Watch(%q, %d) ended with %v after %d changes and progress %d", prefix, after, err, len(f.changes), f.progress)
	}
	return f
}

func upTo(rev int64) func(*feed) bool {
	return func(f *feed) bool { return f.progress >= rev }
}
