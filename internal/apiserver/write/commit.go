package write

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kemudi/kemudi/internal/api/storagemigration"
	"github.com/kemudi/kemudi/internal/apiserver/alloc"
	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/watchcache"
	"github.com/kemudi/kemudi/internal/wire"
)

// commit stores the object, with what was allocated for it, in one transaction.
func (w *attempt) commit(ctx context.Context) (*cache.Item, error) {
	if w.item != nil && w.leaves() {
		return w.p.remove(ctx, w.c, w.item, w.obj)
	}
	name, done := "GuaranteedUpdate etcd3", "Transaction committed"
	if w.item == nil {
		name, done = "Create etcd3", "Txn call succeeded"
	}
	ctx, span := w.c.Step(ctx, name)
	defer span.End()
	span.Event("About to Encode")
	obj, err := w.c.Resource.Stored(ctx, w.final)
	if err != nil {
		return nil, err
	}
	value, err := watchcache.Encode(w.c.Resource.Def, obj)
	if err != nil {
		return nil, err
	}
	if span != nil {
		span.Event("Encode succeeded", tracing.Number("len", len(value)))
	}
	if w.item != nil && w.c.Manager != storagemigration.Manager && w.unchanged(obj, value) {
		if stale, err := w.stale(ctx); err != nil || !stale {
			return w.item, err
		}
	}
	if w.c.DryRun {
		return w.dryRunResult(obj), nil
	}
	item, err := w.put(ctx, obj, value, w.tx)
	if err == nil {
		span.Event(done)
	} else {
		span.Fail(err)
	}
	return item, err
}

// leaves reports that the update took away the last thing that kept an object,
// which is being deleted, from going.
func (w *attempt) leaves() bool {
	old, d := w.item.Object, w.c.Resource.Def
	grace := old.GetDeletionGracePeriodSeconds()
	return old.GetDeletionTimestamp() != nil && len(w.obj.GetFinalizers()) == 0 && (grace == nil || *grace == 0) &&
		(d.PendingDelete == nil || !d.PendingDelete(w.obj))
}

// allocate runs the resource's Commit on a copy: it may have to run again.
func (w *attempt) allocate(ctx context.Context) error {
	d := w.c.Resource.Def
	if d.Commit == nil {
		w.final = w.obj
		return nil
	}
	obj := w.obj.DeepCopyObject().(resource.Object)
	tx := w.p.alloc.Begin(ctx, w.c.Key(), holder(w.c))
	if err := d.Commit(tx, obj, w.old()); err != nil {
		return allocationError(w.c, errors.Join(err, tx.Err))
	}
	w.final, w.tx = obj, tx
	return nil
}

// holder is who has what the call's object allocates.
func holder(c *call.Call) resource.Holder {
	d := c.Resource.Def
	return resource.Holder{Group: d.Group, Resource: d.Plural, Namespace: c.Namespace, Name: c.Name}
}

// allocationError tells clients what could not be allocated.
func allocationError(c *call.Call, err error) error {
	var fieldErr *field.Error
	var api apierrors.APIStatus
	switch {
	case errors.As(err, &fieldErr):
		return c.Invalid(fieldErr)
	case errors.As(err, &api):
		return err
	}
	return apierrors.NewInternalError(err)
}

// errAllocationLost says that the allocations were made on an outdated view.
var errAllocationLost = errors.New("an allocated value has changed hands")

// unchanged reports that there is nothing to write: the bytes are the same but
// for the times in managedFields.
func (w *attempt) unchanged(obj resource.Object, value []byte) bool {
	old := w.item.Object
	if !sameButTimes(obj.GetManagedFields(), old.GetManagedFields()) || wire.Differ(obj, old) {
		return false
	}
	was, err := watchcache.Encode(w.c.Resource.Def, old)
	if err != nil {
		return false
	}
	if bytes.Equal(was, value) {
		return true
	}
	again := cache.Shallow(obj)
	again.SetManagedFields(old.GetManagedFields())
	value, err = watchcache.Encode(w.c.Resource.Def, again)
	return err == nil && bytes.Equal(was, value)
}

// stale says that what is stored would be encrypted otherwise today: then it is written although nothing changes.
func (w *attempt) stale(ctx context.Context) (bool, error) {
	if w.p.o.Encrypted == nil || !w.p.o.Encrypted(w.c.Key()) {
		return false, nil
	}
	kv, _, err := w.p.o.Store.Get(ctx, w.c.Key())
	return kv.Stale, err
}

func sameButTimes(a, b []metav1.ManagedFieldsEntry) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if x.Manager != y.Manager || x.Operation != y.Operation || x.APIVersion != y.APIVersion || x.Subresource != y.Subresource ||
			x.FieldsType != y.FieldsType || !bytes.Equal(x.FieldsV1.GetRawBytes(), y.FieldsV1.GetRawBytes()) {
			return false
		}
	}
	return true
}

// dryRunResult is what would have been stored; it has the resourceVersion of
// what is, or, of a new object, the one that was sent.
func (w *attempt) dryRunResult(obj resource.Object) *cache.Item {
	var rev int64
	if w.item == nil {
		obj.SetResourceVersion(w.givenRV)
	} else {
		rev = w.item.Rev
		obj.SetResourceVersion(w.item.Object.GetResourceVersion())
	}
	return read.NewItem(obj, rev)
}

func (w *attempt) put(ctx context.Context, obj resource.Object, value []byte, tx *alloc.Tx) (*cache.Item, error) {
	p, key := w.p, w.c.Key()
	txn := store.Txn{
		Conds: []store.Cond{{Key: key}},
		Ops:   []store.Op{{Key: key, Value: value, TTL: w.p.ttl(w.c.Resource.Def, obj)}},
	}
	if w.item != nil {
		txn.Conds[0].Rev = w.item.Rev
	}
	txn.Conds = append(txn.Conds, w.relied...)
	carried, err := w.carry(&txn)
	if err != nil {
		return nil, err
	}
	if err := tx.AddTo(&txn); err != nil {
		return nil, err
	}
	at := p.o.Caches.Handoff(w.c.Resource.Def, key, value, cache.Shallow(obj))
	operation := "update"
	if w.item == nil {
		operation = "create"
	}
	began := time.Now()
	res, err := p.o.Store.Txn(ctx, txn)
	p.o.Reads.Tell(operation, w.c, began, err)
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	case err != nil:
		return nil, fmt.Errorf("write %s: %w", key, err)
	case !res.OK && res.Now[0].Rev != txn.Conds[0].Rev:
		return nil, errRaced
	case !res.OK && w.reliedChanged(res.Now):
		return nil, &errRelied{res.Rev}
	case !res.OK:
		p.alloc.Lost(txn.Conds, res)
		return nil, errAllocationLost
	}
	p.o.Reads.Answered(res.Rev)
	tx.Committed(res.Rev)
	carried(res.Rev)
	return at(res.Rev), nil
}

// carry adds to the transaction what admission changes with the write. stored is to be
// called with the revision of the transaction if it was committed.
func (w *attempt) carry(txn *store.Txn) (stored func(rev int64), _ error) {
	ats := make([]func(rev int64) *cache.Item, len(w.carried))
	for i, c := range w.carried {
		obj := cache.Shallow(c.Now)
		obj.SetResourceVersion("")
		key := c.Def.Key(obj.GetNamespace(), obj.GetName())
		value, err := watchcache.Encode(c.Def, obj)
		if err != nil {
			return nil, err
		}
		txn.Ops = append(txn.Ops, store.Op{Key: key, Value: value, TTL: w.p.ttl(c.Def, obj)})
		ats[i] = w.p.o.Caches.Handoff(c.Def, key, value, obj)
	}
	return func(rev int64) {
		for i, c := range w.carried {
			if at := ats[i](rev); c.Stored != nil {
				c.Stored(at.Object)
			}
		}
	}, nil
}

// reliedChanged reports whether the state of a transaction's conditions, which
// begin with the object's own, differs from what admission relied on.
func (w *attempt) reliedChanged(now []store.KV) bool {
	for i, c := range w.relied {
		if now[1+i].Rev != c.Rev {
			return true
		}
	}
	return false
}
