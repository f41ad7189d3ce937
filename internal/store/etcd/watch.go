package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/kemudi/kemudi/internal/store"
)

// watcher is one running Watch. behind holds a token when the store has seen a
// revision since the last one was taken.
type watcher struct{ behind chan struct{} }

// A feed that is idle although the store went on asks etcd how far it is, after
// progressDelay first, then less and less often: etcd keeps silent while the
// feed still has changes to catch up with.
const (
	progressDelay    = 50 * time.Millisecond
	progressMaxDelay = time.Second
)

// sawUpTo is the highest revision that this member's etcd has told of.
func (s *Store) sawUpTo() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.seen
}

// saw notes a revision of the store.
func (s *Store) saw(rev int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rev <= s.mu.seen {
		return
	}
	s.mu.seen = rev
	for w := range s.mu.watchers {
		select {
		case w.behind <- struct{}{}:
		default:
		}
	}
}

func (s *Store) join(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.watchers[w] = struct{}{}
}

func (s *Store) leaveFeed(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.watchers, w)
}

// Watch calls fn with the changes under a prefix.
func (s *Store) Watch(ctx context.Context, prefix string, after int64, fn func([]store.Change, int64) error) error {
	w := &watcher{behind: make(chan struct{}, 1)}
	w.behind <- struct{}{}
	s.join(w)
	defer s.leaveFeed(w)
	f := &follower{prefix: prefix, progress: after, fn: fn}
	for {
		sp, err := s.enter(ctx)
		if err != nil {
			return err
		}
		s.leave(sp) // a feed keeps no engine from ending
		if err := s.follow(ctx, sp, w, f); err != nil {
			return err
		}
	}
}

// follower is a feed from one engine to the next.
type follower struct {
	prefix   string
	progress int64 // everything up to it has been delivered
	fn       func([]store.Change, int64) error
}

// follow follows an engine until its spell is over.
func (s *Store) follow(ctx context.Context, sp *spell, w *watcher, f *follower) error {
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	// A stream of its own: progress is asked for by stream, and one feed's must
	// not wait for another's.
	st, err := sp.watch(watch, f.prefix, f.progress+1)
	if err != nil {
		return s.explain(ctx, "watch "+f.prefix, err)
	}
	defer st.Close()
	ask := time.NewTimer(progressDelay)
	defer ask.Stop()
	armed, delay := true, progressDelay
	for {
		select {
		case r, ok := <-st.Chan():
			if !ok {
				return s.cutOff(ctx, sp)
			}
			changes, rev, err := gather(r, st.Chan(), f.progress)
			if rev > f.progress {
				if err := f.fn(changes, rev); err != nil {
					return err
				}
				f.progress = rev
			}
			if err != nil {
				return err
			}
		case <-w.behind:
			if !armed {
				armed, delay = true, progressDelay
				ask.Reset(delay)
			}
		case <-ask.C:
			if armed = f.progress < s.sawUpTo(); !armed {
				continue
			}
			st.RequestProgressAll()
			delay = min(2*delay, progressMaxDelay)
			ask.Reset(delay)
		case <-sp.over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.stopped:
			return ErrStopped
		}
	}
}

// cutOff waits for what follows the end of a stream: the end of its engine, or, of one
// across the network, that it may be asked again.
func (s *Store) cutOff(ctx context.Context, sp *spell) error {
	again := time.NewTimer(progressMaxDelay)
	defer again.Stop()
	select {
	case <-sp.over:
		return nil
	case <-again.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.stopped:
		return ErrStopped
	}
}

// gatherMost is how many responses are handed on together.
const gatherMost = 128

// gather returns what a response and those that wait behind it have that is newer
// than the progress so far: each is about one transaction, and who takes them in does that for all at
// the cost of one.
func gather(r mvcc.WatchResponse, more <-chan mvcc.WatchResponse, progress int64) (changes []store.Change, rev int64, err error) {
	rev = progress
	for n := 1; ; n++ {
		mvcc.ReportEventReceived(len(r.Events))
		if r.CompactRevision != 0 {
			return changes, rev, store.ErrCompacted
		}
		if upTo := completeTo(&r); upTo > rev {
			changes, rev = appendChanges(changes, r.Events), upTo
		}
		if n == gatherMost {
			return changes, rev, nil
		}
		var ok bool
		select {
		case r, ok = <-more:
			if !ok {
				return changes, rev, nil
			}
		default:
			return changes, rev, nil
		}
	}
}

// completeTo is the revision up to which a response has all changes: etcd's own is
// ahead while a feed catches up.
func completeTo(r *mvcc.WatchResponse) int64 {
	if n := len(r.Events); n > 0 {
		return r.Events[n-1].Kv.ModRevision
	}
	return r.Revision
}

func appendChanges(changes []store.Change, events []*mvccpb.Event) []store.Change {
	for _, e := range events {
		c := store.Change{KV: fromKV(e.Kv)}
		if e.Type == mvccpb.Event_DELETE {
			c.Value = nil
		}
		changes = append(changes, c)
	}
	return changes
}
