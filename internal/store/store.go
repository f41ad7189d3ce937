package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store is the durable state of a cluster. All methods may be called
// concurrently. Byte slices passed in must not be changed afterwards; byte
// slices handed out are shared and read-only.
type Store interface {
	// Get reads one key. A key that does not exist yields a KV with Rev 0 and
	// no error. rev is the revision of the store at the time of the read.
	Get(ctx context.Context, key string) (kv KV, rev int64, err error)

	// Rev is the revision of the store, no older than the call: all that was answered
	// before it is at or below. Calls that wait at one time share one answer.
	Rev(ctx context.Context) (int64, error)

	// List reads the keys with the given prefix in ascending order.
	List(ctx context.Context, prefix string, o ListOptions) (Page, error)

	// Txn applies all Ops in one revision if all Conds hold (S1, S4).
	Txn(ctx context.Context, t Txn) (TxnResult, error)

	// Watch calls fn with each batch of changes under prefix with a revision
	// above after, in order (S2), until ctx ends or fn fails. A batch never
	// splits a revision. progress is the revision up to which the feed is
	// complete: fn is also called with an empty batch when only progress moved
	// (at the latest one second after this Store learnt of a revision made by
	// writes elsewhere, and the feed is idle). It returns ErrCompacted if after
	// is too old.
	Watch(ctx context.Context, prefix string, after int64, fn func(changes []Change, progress int64) error) error

	// Compact forgets all history below rev.
	Compact(ctx context.Context, rev int64) error

	Lives
}

// Lives are what keys have that must not outlast the process that wrote them. To renew one
// writes nothing.
type Lives interface {
	// BeginLife begins a life. It ends some time after ttl, in whole seconds, has passed
	// since it was last renewed, and never before.
	BeginLife(ctx context.Context, ttl time.Duration) (Life, error)
	// RenewLife lets a life begin anew. It returns ErrLifeOver of one that has ended, or that cannot
	// be relied on to end in its time: then another one is to be begun.
	RenewLife(ctx context.Context, l Life) error
	// EndLife ends a life at once: its keys are deleted.
	EndLife(ctx context.Context, l Life) error
}

// Life is for how long some keys are there: until nobody renews it any more. 0 is that of
// all others.
type Life int64

// KV is one key at one revision.
type KV struct {
	Key   string
	Value []byte
	Rev   int64 // revision of the last write (etcd's mod revision); 0: does not exist

	// Of a store that encrypts values (package seal) alone: Err says why this one cannot be read, and Value is
	// then not what is stored. Stale says that it would be stored otherwise today.
	Err   error
	Stale bool
}

// ListOptions narrow a List. The zero value asks for everything, now.
type ListOptions struct {
	From  string // first key to return, inclusive; empty: the first one with the prefix
	Limit int    // at most so many keys; 0: all
	Rev   int64  // read the state at this revision; 0: the newest
}

// Page is what a List returns.
type Page struct {
	KVs  []KV
	Rev  int64 // the revision the page shows
	More int64 // how many keys follow after the last one returned
}

// Txn is a set of conditions and the writes to make if all of them hold. No
// key may be written twice in one transaction.
type Txn struct {
	Conds []Cond
	Ops   []Op
}

// MaxTxnBytes is how large the keys and values of a transaction may be in sum.
const MaxTxnBytes = 4 << 20

// Check refuses a transaction that is too large or writes a key twice. size is that
// of its keys and values.
func (t *Txn) Check() (size int, err error) {
	var written map[string]bool
	if len(t.Ops) > 1 {
		written = make(map[string]bool, len(t.Ops))
	}
	for _, op := range t.Ops {
		size += len(op.Key) + len(op.Value)
		if written[op.Key] {
			return size, fmt.Errorf("transaction writes key %s twice", op.Key)
		}
		if written != nil {
			written[op.Key] = true
		}
	}
	if size > MaxTxnBytes {
		return size, ErrTooLarge
	}
	return size, nil
}

// Cond holds if Key was last written at Rev; Rev 0 means that it does not exist.
type Cond struct {
	Key string
	Rev int64
}

// Op writes Value at Key, or deletes Key if Value is nil.
type Op struct {
	Key   string
	Value []byte
	TTL   time.Duration // delete the key after about this time; 0: never. Whole seconds.
	Life  Life          // delete the key when it ends; not with TTL
	Keep  bool          // the key, which exists, lives for as long as it would have without this write; with neither
}

// TxnResult says what a transaction did.
type TxnResult struct {
	OK  bool  // the conditions held and the writes are durable
	Rev int64 // OK: the revision of the writes; otherwise, or if nothing changed, the store's revision
	// Now holds the current KVs of the keys named in Conds, in their order,
	// when the conditions did not hold.
	Now []KV
}

// Change is one write in the feed. It does not carry the value before: that
// would cost etcd a third of a write's time, and followers have it.
type Change struct {
	KV // Value nil: deleted at Rev
}

// ErrLifeOver answers what needs a life that has ended.
var ErrLifeOver = errors.New("what keeps these keys in the store has ended")

// ErrCompacted answers reads and feeds at a revision whose history is gone (S5).
var ErrCompacted = errors.New("required revision has been compacted")

// ErrFuture answers reads at a revision the store has not reached.
var ErrFuture = errors.New("required revision is in the future")

// ErrTooLarge answers transactions of more than MaxTxnBytes.
var ErrTooLarge = errors.New("request is too large")

// ErrNoMajority answers what needs a majority of the store's members while this one
// cannot reach any. Nothing was written.
var ErrNoMajority = errors.New("the store cannot reach a majority of its members")

// ErrUnknown answers writes of which it cannot be said whether they were made: they had
// been sent when the store ceased to answer.
var ErrUnknown = errors.New("it is not known whether the write was made")

// ErrDisk answers writes that the store's disk does not take: it is full, or has
// become read-only. Reads go on. The text says what to do.
var ErrDisk = errors.New("the store cannot write to its disk")
