package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/kemudi/kemudi/internal/task"
)

// engine is the etcd that a Store asks: one in the process, or others by the network.
type engine interface {
	// api is etcd's own client, for what is rare.
	api() *clientv3.Client
	// behind reports whether an answer may come from another member than the one before, which
	// may not have come as far.
	behind() bool
	// take makes sure that there is room for a write of so many bytes, some of which it
	// adds to the database, or says in a store.ErrDisk why not.
	take(size, added int) error
	// room says in a store.ErrDisk why no writes are taken at present.
	room() error
	// bound bounds a call, or refuses it if there is nobody to answer it.
	bound(ctx context.Context) (context.Context, context.CancelFunc, error)
	// txn bounds itself.
	txn(ctx context.Context, t *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error)
	// rev is the revision of the whole cluster, no older than the call. It bounds itself.
	rev(ctx context.Context) (int64, error)
	// keepAlive lets a lease begin anew.
	keepAlive(ctx context.Context, id clientv3.LeaseID) error
	// watch follows the keys with a prefix from a revision on, until ctx ends.
	watch(ctx context.Context, prefix string, from int64) (stream, error)
}

// stream is what a watch delivers. mvcc.WatchStream is one.
type stream interface {
	// Chan delivers changes in the order of their revisions, none of them in parts. It
	// may be closed when the engine ends.
	Chan() <-chan mvcc.WatchResponse
	// RequestProgressAll has the stream say how far it is, unless it is behind.
	RequestProgressAll() bool
	Close()
}

// spell is the time during which one engine answers. Between two of them callers wait.
type spell struct {
	engine
	over chan struct{} // closed when the engine is about to end: feeds go on with the next
	left chan struct{} // closed when over and no call is under way any more

	users int  // calls under way; guarded by the Store's lock
	ends  bool // likewise
}

// read calls f, which reads what may have to be asked of others: again if their leader has
// changed meanwhile.
func (sp *spell) read(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel, err := sp.bound(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	return because(ctx, again(ctx, f))
}

// again calls f, and once more if the leader of others has changed meanwhile.
func again(ctx context.Context, f func(ctx context.Context) error) error {
	retry := task.Backoff{Initial: leaderRetry, Max: 10 * leaderRetry, Jitter: 0.1}
	for {
		err := f(ctx)
		if !oneOf(err, leaderChanged) || task.Sleep(ctx, retry.Next()) != nil {
			return err
		}
	}
}

// enter waits until there is an engine, and keeps it until leave.
func (s *Store) enter(ctx context.Context) (*spell, error) {
	for {
		s.mu.Lock()
		sp, begun := s.mu.spell, s.mu.begun
		if sp != nil {
			sp.users++
		}
		s.mu.Unlock()
		if sp != nil {
			return sp, nil
		}
		select {
		case <-begun:
		case <-s.stopped:
			return nil, ErrStopped
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// leave ends what enter began.
func (s *Store) leave(sp *spell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sp.users--; sp.ends && sp.users == 0 {
		close(sp.left)
	}
}

// use has all calls ask an engine until retire.
func (s *Store) use(e engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.spell = &spell{engine: e, over: make(chan struct{}), left: make(chan struct{})}
	close(s.mu.begun)
}

// retire keeps new calls waiting, and returns when all others have been answered or ctx
// ends.
func (s *Store) retire(ctx context.Context) {
	s.mu.Lock()
	sp := s.mu.spell
	if sp != nil {
		s.mu.spell, s.mu.begun = nil, make(chan struct{})
		sp.ends = true
		close(sp.over)
		if sp.users == 0 {
			close(sp.left)
		}
	}
	s.mu.Unlock()
	if sp == nil {
		return
	}
	select {
	case <-sp.left:
	case <-ctx.Done():
	}
}
