package etcd

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kemudi/kemudi/internal/store"
)

// Store is a store.Store over an etcd.
type Store struct {
	ready   chan struct{} // closed when the store can be read and written for the first time
	stopped chan struct{} // closed when it cannot be any more

	leases leases
	lives  lives

	mu struct {
		sync.Mutex
		spell    *spell        // nil: there is no engine at present
		begun    chan struct{} // closed when there is one
		seen     int64         // the highest revision that etcd has told of
		watchers map[*watcher]struct{}
	}
}

var _ store.Store = (*Store)(nil)

func (s *Store) init() {
	s.ready, s.stopped = make(chan struct{}), make(chan struct{})
	s.mu.begun = make(chan struct{})
	s.mu.watchers = map[*watcher]struct{}{}
}

// Ready is closed when the store can be read and written.
func (s *Store) Ready() <-chan struct{} { return s.ready }

// Get reads one key.
func (s *Store) Get(ctx context.Context, key string) (store.KV, int64, error) {
	sp, err := s.enter(ctx)
	if err != nil {
		return store.KV{}, 0, err
	}
	defer s.leave(sp)
	var r *clientv3.GetResponse
	err = sp.read(ctx, func(ctx context.Context) (err error) {
		r, err = sp.api().Get(ctx, key)
		return err
	})
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

// Rev is the revision of the store, no older than the call.
func (s *Store) Rev(ctx context.Context) (int64, error) {
	sp, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer s.leave(sp)
	var rev int64
	err = again(ctx, func(ctx context.Context) (err error) {
		rev, err = sp.rev(ctx)
		return err
	})
	if err != nil {
		return 0, s.explain(ctx, "ask for the revision", err)
	}
	s.saw(rev)
	return rev, nil
}

// List reads the keys with a prefix.
func (s *Store) List(ctx context.Context, prefix string, o store.ListOptions) (store.Page, error) {
	sp, err := s.enter(ctx)
	if err != nil {
		return store.Page{}, err
	}
	defer s.leave(sp)
	opts := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix))}
	if o.Limit > 0 {
		opts = append(opts, clientv3.WithLimit(int64(o.Limit)))
	}
	if o.Rev > 0 {
		opts = append(opts, clientv3.WithRev(o.Rev))
		if !sp.behind() && o.Rev <= s.sawUpTo() { // the past is the same for all members, and this one has come to it
			opts = append(opts, clientv3.WithSerializable())
		}
	}
	var r *clientv3.GetResponse
	err = sp.read(ctx, func(ctx context.Context) (err error) {
		r, err = sp.api().Get(ctx, max(prefix, o.From), opts...)
		return err
	})
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
	size, err := t.Check()
	if err != nil {
		return store.TxnResult{}, err
	}
	sp, err := s.enter(ctx)
	if err != nil {
		return store.TxnResult{}, err
	}
	defer s.leave(sp)
	if err := sp.take(size, added(t.Ops)); err != nil {
		return store.TxnResult{}, err
	}
	req := &etcdserverpb.TxnRequest{Compare: make([]*etcdserverpb.Compare, len(t.Conds)), Success: make([]*etcdserverpb.RequestOp, len(t.Ops))}
	for i, op := range t.Ops {
		if req.Success[i], err = s.op(ctx, sp, op); err != nil {
			return store.TxnResult{}, s.explain(ctx, "grant a lease for "+op.Key, err)
		}
	}
	for i, cond := range t.Conds {
		req.Compare[i] = &etcdserverpb.Compare{
			Key: []byte(cond.Key), Result: etcdserverpb.Compare_EQUAL, Target: etcdserverpb.Compare_MOD,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: cond.Rev},
		}
	}
	r, err := sp.txn(ctx, req)
	if err != nil {
		return store.TxnResult{}, s.fate(ctx, "commit transaction", err)
	}
	s.saw(r.Header.Revision)
	if r.Succeeded {
		return store.TxnResult{OK: true, Rev: r.Header.Revision}, nil
	}
	return s.refused(ctx, sp, t.Conds, r.Header.Revision)
}

// added is how many bytes of keys and values operations put into the store.
func added(ops []store.Op) (n int) {
	for _, op := range ops {
		if op.Value != nil {
			n += len(op.Key) + len(op.Value)
		}
	}
	return n
}

// refused reads the keys of a transaction's conditions, at the revision at which it was
// refused. The transaction itself has no reads for that case: nearly
// all transactions succeed, and would carry these reads through the log for nothing.
func (s *Store) refused(ctx context.Context, sp *spell, conds []store.Cond, rev int64) (store.TxnResult, error) {
	gets := make([]clientv3.Op, len(conds))
	for i, cond := range conds {
		gets[i] = clientv3.OpGet(cond.Key, clientv3.WithRev(rev))
	}
	var r *clientv3.TxnResponse
	err := sp.read(ctx, func(ctx context.Context) (err error) {
		r, err = sp.api().Txn(ctx).Then(gets...).Commit()
		return err
	})
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

func (s *Store) op(ctx context.Context, sp *spell, op store.Op) (*etcdserverpb.RequestOp, error) {
	if op.Value == nil {
		gone := &etcdserverpb.DeleteRangeRequest{Key: []byte(op.Key)}
		return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{RequestDeleteRange: gone}}, nil
	}
	put := &etcdserverpb.PutRequest{Key: []byte(op.Key), Value: op.Value, Lease: int64(op.Life), IgnoreLease: op.Keep}
	if op.TTL > 0 {
		ctx, cancel, err := sp.bound(ctx)
		if err != nil {
			return nil, err
		}
		defer cancel()
		id, err := s.leases.get(ctx, sp.api(), op.TTL)
		if err != nil {
			return nil, because(ctx, err)
		}
		put.Lease = int64(id)
	}
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: put}}, nil
}

// Compact forgets the history below rev.
func (s *Store) Compact(ctx context.Context, rev int64) error {
	sp, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.leave(sp)
	if err := sp.take(0, 0); err != nil {
		return err // a compaction takes some of the disk, and frees none
	}
	_, err = sp.api().Compact(ctx, rev)
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil // as far, or further, already
	}
	return s.explain(ctx, "compact", err)
}

func fromKV(kv *mvccpb.KeyValue) store.KV {
	value := kv.Value
	if value == nil {
		value = []byte{}
	}
	return store.KV{Key: string(kv.Key), Value: value, Rev: kv.ModRevision}
}
