package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	servererrors "go.etcd.io/etcd/server/v3/etcdserver/errors"

	"github.com/kemudi/kemudi/internal/store"
)

// Store is a store.Store over an etcd client.
type Store struct {
	ready   chan struct{} // closed when client is set
	stopped chan struct{} // closed when the client works no more
	client  *clientv3.Client
	server  *etcdserver.EtcdServer // what every write asks, and what feeds; set with client

	leases leases
	disk   *diskGuard // set before ready is closed

	mu struct {
		sync.Mutex
		seen     int64 // the highest revision that etcd has told of
		watchers map[*watcher]struct{}
	}
}

var _ store.Store = (*Store)(nil)

func (s *Store) init() {
	s.ready, s.stopped = make(chan struct{}), make(chan struct{})
	s.mu.watchers = map[*watcher]struct{}{}
}

// open waits until there is a client.
func (s *Store) open(ctx context.Context) (*clientv3.Client, error) {
	select {
	case <-s.stopped:
		return nil, ErrStopped
	default:
	}
	select {
	case <-s.ready:
		return s.client, nil
	case <-s.stopped:
		return nil, ErrStopped
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Get reads one key.
func (s *Store) Get(ctx context.Context, key string) (store.KV, int64, error) {
	c, err := s.open(ctx)
	if err != nil {
		return store.KV{}, 0, err
	}
	r, err := c.Get(ctx, key)
	if err != nil {
		return store.KV{}, 0, s.explain(ctx, "get "+key, err)
	}
	s.saw(r.Header.Revision)
	kv := store.KV{Key: key}
	if len(r.Kvs) > 0 {
		kv = fromKV(r.Kvs[0])
	}
	return kv, r.Header.Revision, nil
}

// Rev is the revision of the store, no older than the call. Etcd asks its leader once for
// all who wait, and waits until it has come so far itself.
func (s *Store) Rev(ctx context.Context) (int64, error) {
	if _, err := s.open(ctx); err != nil {
		return 0, err
	}
	if err := s.server.LinearizableReadNotify(ctx); err != nil {
		return 0, s.explain(ctx, "ask for the revision", err)
	}
	rev := s.server.KV().Rev()
	s.saw(rev)
	return rev, nil
}

// List reads the keys with a prefix.
func (s *Store) List(ctx context.Context, prefix string, o store.ListOptions) (store.Page, error) {
	c, err := s.open(ctx)
	if err != nil {
		return store.Page{}, err
	}
	opts := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix))}
	if o.Limit > 0 {
		opts = append(opts, clientv3.WithLimit(int64(o.Limit)))
	}
	if o.Rev > 0 {
		opts = append(opts, clientv3.WithRev(o.Rev))
		if o.Rev <= s.sawUpTo() { // the past is the same for all members, and this one has come to it
			opts = append(opts, clientv3.WithSerializable())
		}
	}
	r, err := c.Get(ctx, max(prefix, o.From), opts...)
	if err != nil {
		return store.Page{}, s.explain(ctx, "list "+prefix, err)
	}
	s.saw(r.Header.Revision)
	page := store.Page{KVs: make([]store.KV, len(r.Kvs)), Rev: r.Header.Revision, More: r.Count - int64(len(r.Kvs))}
	if o.Rev > 0 {
		page.Rev = o.Rev
	}
	for i, kv := range r.Kvs {
		page.KVs[i] = fromKV(kv)
	}
	return page, nil
}

// Txn applies all writes in one revision if all conditions hold.
func (s *Store) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	c, err := s.open(ctx)
	if err != nil {
		return store.TxnResult{}, err
	}
	size, err := t.Check()
	if err != nil {
		return store.TxnResult{}, err
	}
	if err := s.disk.take(size); err != nil {
		return store.TxnResult{}, err
	}
	req := &etcdserverpb.TxnRequest{Compare: make([]*etcdserverpb.Compare, len(t.Conds)), Success: make([]*etcdserverpb.RequestOp, len(t.Ops))}
	for i, op := range t.Ops {
		if req.Success[i], err = s.op(ctx, c, op); err != nil {
			return store.TxnResult{}, s.explain(ctx, "grant a lease for "+op.Key, err)
		}
	}
	for i, cond := range t.Conds {
		req.Compare[i] = &etcdserverpb.Compare{
			Key: []byte(cond.Key), Result: etcdserverpb.Compare_EQUAL, Target: etcdserverpb.Compare_MOD,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: cond.Rev},
		}
	}
	r, err := s.server.Txn(ctx, req)
	if err != nil {
		return store.TxnResult{}, s.explain(ctx, "commit transaction", err)
	}
	s.saw(r.Header.Revision)
	if r.Succeeded {
		return store.TxnResult{OK: true, Rev: r.Header.Revision}, nil
	}
	return s.refused(ctx, t.Conds, r.Header.Revision)
}

// refused reads the keys of a transaction's conditions, at the revision at which it was
// refused. The transaction itself has no reads for that case: nearly
// all transactions succeed, and would carry these reads through the log for nothing.
func (s *Store) refused(ctx context.Context, conds []store.Cond, rev int64) (store.TxnResult, error) {
	gets := make([]clientv3.Op, len(conds))
	for i, cond := range conds {
		gets[i] = clientv3.OpGet(cond.Key, clientv3.WithRev(rev))
	}
	r, err := s.client.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return store.TxnResult{}, s.explain(ctx, "read what refused a transaction", err)
	}
	result := store.TxnResult{Rev: rev, Now: make([]store.KV, len(conds))}
	for i, cond := range conds {
		result.Now[i].Key = cond.Key
		if kvs := r.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
			result.Now[i] = fromKV(kvs[0])
		}
	}
	return result, nil
}

func (s *Store) op(ctx context.Context, c *clientv3.Client, op store.Op) (*etcdserverpb.RequestOp, error) {
	if op.Value == nil {
		gone := &etcdserverpb.DeleteRangeRequest{Key: []byte(op.Key)}
		return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{RequestDeleteRange: gone}}, nil
	}
	put := &etcdserverpb.PutRequest{Key: []byte(op.Key), Value: op.Value}
	if op.TTL > 0 {
		id, err := s.leases.get(ctx, c, op.TTL)
		if err != nil {
			return nil, err
		}
		put.Lease = int64(id)
	}
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: put}}, nil
}

// Compact forgets the history below rev.
func (s *Store) Compact(ctx context.Context, rev int64) error {
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	if err := s.disk.take(0); err != nil {
		return err // a compaction takes some of the disk, and frees none
	}
	_, err = c.Compact(ctx, rev)
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil // as far, or further, already
	}
	return s.explain(ctx, "compact", err)
}

// explain turns etcd's errors into those of package store and says what was being done.
func (s *Store) explain(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrCompacted):
		return store.ErrCompacted
	case errors.Is(err, rpctypes.ErrFutureRev):
		return store.ErrFuture
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, servererrors.ErrRequestTooLarge):
		return store.ErrTooLarge
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	select {
	case <-s.stopped:
		return ErrStopped
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

func fromKV(kv *mvccpb.KeyValue) store.KV {
	value := kv.Value
	if value == nil {
		value = []byte{}
	}
	return store.KV{Key: string(kv.Key), Value: value, Rev: kv.ModRevision}
}
