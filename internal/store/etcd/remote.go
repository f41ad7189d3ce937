package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/task"
)

// RemoteOptions say where etcds are that other programs run.
type RemoteOptions struct {
	// Servers are their addresses, as "https://10.0.0.1:2379". Required.
	Servers []string
	// CertFile and KeyFile are what they know this program by, CAFile has the authorities
	// that sign them. Needed for https.
	CertFile, KeyFile, CAFile string
	// Dial makes connections to them. Nil: they are made directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Tracing makes spans of calls, of which they are told; nil: there are none.
	Tracing *tracing.Provider
	// Log gets what the operator should know. Required.
	Log *slog.Logger
}

// Remote is a store in etcds that other programs run, alone or as members of a cluster.
// They may be of any version from 3.4 on. To take all that Kemudi writes they need
// --max-txn-ops=10000 and --max-request-bytes=4718592.
type Remote struct {
	Store
	o      RemoteOptions
	client *clientv3.Client
}

// NewRemote checks the options. Call Run, or the connections stay open.
func NewRemote(o RemoteOptions) (*Remote, error) {
	if len(o.Servers) == 0 || o.Log == nil {
		return nil, errors.New("etcd options: Servers and Log must be set")
	}
	c := clientv3.Config{
		Endpoints: o.Servers, DialKeepAliveTime: remoteKeepAlive, DialKeepAliveTimeout: remoteKeepAlive,
		Logger: zap.New(slogCore{log: o.Log.With("component", "etcd client")}),
	}
	info := transport.TLSInfo{CertFile: o.CertFile, KeyFile: o.KeyFile, TrustedCAFile: o.CAFile}
	if !info.Empty() || o.CAFile != "" {
		t, err := info.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("read the files for connections to etcd: %w", err)
		}
		c.TLS = t
	}
	if o.Dial != nil {
		c.DialOptions = append(c.DialOptions, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return o.Dial(ctx, "tcp", address) }))
	}
	if h := o.Tracing.Calls(); h != nil {
		c.DialOptions = append(c.DialOptions, grpc.WithStatsHandler(h))
	}
	client, err := clientv3.New(c)
	if err != nil {
		return nil, fmt.Errorf("prepare connections to etcd at %v: %w", o.Servers, err)
	}
	r := &Remote{o: o, client: client}
	r.init()
	return r, nil
}

// Size is that of the database of the first etcd, in bytes, as it says itself; 0: it does not.
func (r *Remote) Size() int64 {
	ctx, cancel := context.WithTimeout(r.client.Ctx(), answerTime)
	defer cancel()
	status, err := r.client.Status(ctx, r.o.Servers[0])
	if err != nil {
		return 0
	}
	return status.DbSize
}

const (
	// remoteKeepAlive is how long a connection may be silent before it is tried, and how long
	// an answer to that may take.
	remoteKeepAlive = 5 * time.Second
	// remoteRetry is how often an etcd is asked that has not answered yet.
	remoteRetry = time.Second
)

// Run makes the store ready as soon as an etcd answers, and forgets old history, until ctx
// ends. It may be called once.
func (r *Remote) Run(ctx context.Context) error {
	defer close(r.stopped)
	defer r.client.Close() // whatever was under way ends with it
	r.use(&remote{client: r.client, kv: clientv3.RetryKVClient(r.client), asks: newAsker()})
	defer r.retire(ctx)
	for told := false; ; {
		_, err := r.Rev(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !told {
			told = true
			r.o.Log.Warn("etcd does not answer; check its address and the certificates", "servers", r.o.Servers, "err", err)
		}
		if err := task.Sleep(ctx, remoteRetry); err != nil {
			return err
		}
	}
	close(r.ready)
	return r.compactOld(ctx)
}

// compactOld forgets what is older than the history to be kept. Several servers that do so
// leave as much.
func (r *Remote) compactOld(ctx context.Context) error {
	last := r.sawUpTo()
	for {
		if err := task.Sleep(ctx, defaultHistory); err != nil {
			return err
		}
		rev := last
		if last = r.sawUpTo(); last == rev {
			continue
		}
		if err := r.Compact(ctx, rev); err != nil && ctx.Err() == nil {
			r.o.Log.Warn("old revisions were not compacted", "rev", rev, "err", err)
		}
	}
}

// remote asks etcds by the network.
type remote struct {
	client *clientv3.Client
	kv     etcdserverpb.KVClient
	asks   *asker
}

var _ engine = (*remote)(nil)

func (r *remote) api() *clientv3.Client { return r.client }

func (r *remote) behind() bool { return true }

func (r *remote) take(int, int) error { return nil }

func (r *remote) room() error { return nil }

func (r *remote) bound(ctx context.Context) (context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errNoAnswer)
	return ctx, cancel, nil
}

func (r *remote) txn(ctx context.Context, t *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	ctx, cancel, err := r.bound(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	answer, err := r.kv.Txn(ctx, t)
	return answer, because(ctx, clientv3.ContextError(ctx, err))
}

func (r *remote) rev(ctx context.Context) (int64, error) {
	return r.asks.ask(ctx, func(ctx context.Context) (int64, error) {
		ctx, cancel, err := r.bound(context.WithoutCancel(ctx)) // others wait for it, too
		if err != nil {
			return 0, err
		}
		defer cancel()
		answer, err := r.client.Get(ctx, everything, clientv3.WithCountOnly())
		if err != nil {
			return 0, because(ctx, err)
		}
		return answer.Header.Revision, nil
	})
}

func (r *remote) keepAlive(ctx context.Context, id clientv3.LeaseID) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	stream, err := etcdserverpb.NewLeaseClient(r.client.ActiveConnection()).LeaseKeepAlive(ctx) // the client's own would try again without a rest
	if err == nil {
		err = stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)})
	}
	var answer *etcdserverpb.LeaseKeepAliveResponse
	if err == nil {
		answer, err = stream.Recv()
	}
	if err == nil && answer.TTL <= 0 {
		err = rpctypes.ErrLeaseNotFound
	}
	return clientv3.ContextError(ctx, err)
}

// everything is before all keys, and is itself none that anybody writes.
const everything = "\x00"

// watch follows all keys: then each revision is told of, and how far the feed is needs no
// asking, which versions before 3.4.25 answer too soon.
func (r *remote) watch(ctx context.Context, prefix string, from int64) (stream, error) {
	w := clientv3.NewWatcher(r.client) // a connection of its own: feeds do not wait for each other
	in := w.Watch(clientv3.WithRequireLeader(ctx), everything, clientv3.WithFromKey(), clientv3.WithRev(from))
	st := &remoteStream{prefix: []byte(prefix), out: make(chan mvcc.WatchResponse), watcher: w, run: task.NewGroup(ctx)}
	st.run.Go("feed", func(ctx context.Context) error { return st.pump(ctx, in) })
	return st, nil
}

// remoteStream passes on what a watch of the client tells.
type remoteStream struct {
	prefix  []byte
	out     chan mvcc.WatchResponse
	watcher clientv3.Watcher
	run     *task.Group
}

var _ stream = (*remoteStream)(nil)

func (st *remoteStream) Chan() <-chan mvcc.WatchResponse { return st.out }

func (st *remoteStream) RequestProgressAll() bool { return true }

func (st *remoteStream) Close() {
	st.run.Cancel(nil)
	_ = st.watcher.Close() // of what is not wanted any more
	_ = st.run.Wait()      // likewise
}

func (st *remoteStream) pump(ctx context.Context, in clientv3.WatchChan) error {
	defer close(st.out)
	for r := range in {
		n := len(r.Events)
		if r.CompactRevision == 0 && (n == 0 || r.Err() != nil) {
			if r.Canceled || r.Err() != nil {
				return nil // it may be asked again
			}
			continue
		}
		list := []mvcc.WatchResponse{{Events: st.wanted(r.Events), CompactRevision: r.CompactRevision}}
		if n > 0 { // a response is complete up to its last change, wanted or not
			list = append(list, mvcc.WatchResponse{Revision: r.Events[n-1].Kv.ModRevision})
		}
		for _, one := range list {
			select {
			case st.out <- one:
			case <-ctx.Done():
				return nil
			}
		}
	}
	return nil
}

func (st *remoteStream) wanted(events []*clientv3.Event) (list []*mvccpb.Event) {
	for _, e := range events {
		if bytes.HasPrefix(e.Kv.Key, st.prefix) {
			list = append(list, (*mvccpb.Event)(e))
		}
	}
	return list
}

// asker asks once for all who wait: whoever comes while somebody asks waits for the next
// answer, which is asked for afterwards.
type asker struct {
	turn chan struct{} // holds a token while nobody asks
	mu   struct {
		sync.Mutex
		next *answer // what those who have come since wait for
	}
}

// answer is set when done is closed.
type answer struct {
	done chan struct{}
	rev  int64
	err  error
}

func newAsker() *asker {
	a := &asker{turn: make(chan struct{}, 1)}
	a.turn <- struct{}{}
	return a
}

func (a *asker) ask(ctx context.Context, f func(ctx context.Context) (int64, error)) (int64, error) {
	a.mu.Lock()
	if a.mu.next == nil {
		a.mu.next = &answer{done: make(chan struct{})}
	}
	mine := a.mu.next
	a.mu.Unlock()
	select {
	case <-mine.done:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-a.turn:
		defer func() { a.turn <- struct{}{} }()
		a.mu.Lock()
		asked := a.mu.next == mine // otherwise it is answered
		if asked {
			a.mu.next = nil
		}
		a.mu.Unlock()
		if asked {
			mine.rev, mine.err = f(ctx)
			close(mine.done)
		}
	}
	return mine.rev, mine.err
}
