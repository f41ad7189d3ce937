package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

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

func (s *Store) seen() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.seen
}

func (s *Store) join(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.watchers[w] = struct{}{}
}

func (s *Store) leave(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.watchers, w)
}

// Watch calls fn with the changes under a prefix.
func (s *Store) Watch(ctx context.Context, prefix string, after int64, fn func([]store.Change, int64) error) error {
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	w := &watcher{behind: make(chan struct{}, 1)}
	w.behind <- struct{}{}
	s.join(w)
	defer s.leave(w)

	// A stream of its own: progress is asked for by stream, and one feed's must
	// not wait for another's.
	wctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "feed", fmt.Sprintf("%p", w)))
	defer cancel()
	responses := c.Watch(wctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1))
	progress := after
	ask := time.NewTimer(progressDelay)
	defer ask.Stop()
	armed, delay := true, progressDelay
	for {
		select {
		case r, ok := <-responses:
			if !ok {
				return s.watchEnded(ctx, prefix)
			}
			if err := r.Err(); err != nil {
				if r.CompactRevision != 0 || errors.Is(err, rpctypes.ErrCompacted) {
					return store.ErrCompacted
				}
				return s.explain(ctx, "watch "+prefix, err)
			}
			changes, rev := toChanges(&r)
			if rev <= progress {
				continue
			}
			if err := fn(changes, rev); err != nil {
				return err
			}
			progress = rev
		case <-w.behind:
			if !armed {
				armed, delay = true, progressDelay
				ask.Reset(delay)
			}
		case <-ask.C:
			if armed = progress < s.seen(); !armed {
				continue
			}
			if err := c.RequestProgress(wctx); err != nil {
				return s.explain(ctx, "ask for progress of "+prefix, err)
			}
			delay = min(2*delay, progressMaxDelay)
			ask.Reset(delay)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *Store) watchEnded(ctx context.Context, prefix string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.explain(ctx, "watch "+prefix, errors.New("the feed has ended"))
}

// toChanges returns the changes and the revision up to which they are all:
// etcd's own revision in the header is ahead while a feed catches up.
func toChanges(r *clientv3.WatchResponse) ([]store.Change, int64) {
	if len(r.Events) == 0 {
		return nil, r.Header.Revision
	}
	changes := make([]store.Change, len(r.Events))
	for i, e := range r.Events {
		changes[i].KV = fromKV(e.Kv)
		if e.Type == mvccpb.DELETE {
			changes[i].Value = nil
		}
	}
	return changes, changes[len(changes)-1].Rev
}
