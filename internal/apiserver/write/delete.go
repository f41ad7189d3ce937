package write

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/apiserver/alloc"
	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// Delete deletes the call's object as the call says.
func (p *Pipeline) Delete(ctx context.Context, c *call.Call) (call.Result, error) {
	if unsafe := c.Delete.IgnoreStoreReadErrorWithClusterBreakingPotential; unsafe != nil && *unsafe {
		return p.deleteUnread(ctx, c)
	}
	warnOfNoPolicy(c)
	it, gone, err := p.deleteOrMark(ctx, c, c.Delete)
	out := call.Result{Item: it, Gone: gone}
	if o := c.Delete.OrphanDependents; !gone && o != nil && !*o { //nolint:staticcheck // the old form of the policy
		out.Code = http.StatusAccepted
	}
	return out, err
}

// warnOfNoPolicy tells who leaves the policy to the server what that means, where it surprises people.
func warnOfNoPolicy(c *call.Call) {
	if text := c.Resource.Def.NoPolicyWarning; text != "" && c.Delete.PropagationPolicy == nil && c.Delete.OrphanDependents == nil { //nolint:staticcheck // the old form of the policy
		c.Warn(text)
	}
}

// deleteOrMark removes an object, or marks it as being deleted where something still
// has to happen first (finalizers, grace period). gone tells which; item is the
// object's last state, or the marked one.
func (p *Pipeline) deleteOrMark(ctx context.Context, c *call.Call, o *metav1.DeleteOptions) (item *cache.Item, gone bool, err error) {
	var w *attempt
	defer func() { w.end() }()
	if grace := o.GracePeriodSeconds; grace != nil && *grace < 0 { // which is no wish to be without
		own := *o
		own.GracePeriodSeconds, o = new(int64(1)), &own
	}
	for try := 0; ; try++ {
		old, err := p.o.Reads.Latest(ctx, c, try > 0)
		if err != nil {
			return nil, false, err
		}
		if old == nil {
			return nil, false, c.NotFound()
		}
		if err := unmet(c, old.Object, o.Preconditions); err != nil {
			if try == 0 {
				continue // the cache may be behind: look again in the store
			}
			return nil, false, err
		}
		w.end()
		w = &attempt{p: p, c: c, item: old}
		if w.was, err = c.Resource.ViewOne(ctx, old); err != nil {
			w.was = nil // what cannot be shown can be deleted all the same
		}
		if err := w.admitDelete(ctx, o); err != nil {
			return nil, false, err
		}
		mark := markDeleted(c, old.Object, o)
		switch {
		case mark == nil:
			item, err = p.remove(ctx, c, old, old.Object)
			gone = true
		case mark == old.Object:
			return old, false, nil
		default:
			w.obj = mark
			item, err = w.commitMark(ctx)
			gone = false
		}
		if errors.Is(err, errRaced) && try < maxTries {
			continue
		}
		return item, gone, w.answer(err)
	}
}

// unmet returns the conflict if an object is not what a change expects.
func (ch *Change) unmet(c *call.Call, obj resource.Object) error {
	switch p := ch.Only; {
	case ch.Leaving:
		return unmet(c, obj, p)
	case p.UID != nil && *p.UID != obj.GetUID():
		return c.Conflict(uidMismatch(c.Key(), *p.UID, obj.GetUID()))
	case p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion():
		return c.Conflict(revisionMismatch(c.Key(), *p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// unmet returns the conflict if an object is not what its deletion expects.
func unmet(c *call.Call, obj resource.Object, p *metav1.Preconditions) error {
	switch {
	case p == nil:
	case p.UID != nil && *p.UID != obj.GetUID():
		return c.Unmet(fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", //nolint:staticcheck // upstream's text
			*p.UID, obj.GetUID()))
	case p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion():
		return c.Unmet(fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", //nolint:staticcheck // upstream's text
			*p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// markDeleted returns the object as it stays until it may go: nil if it goes at
// once, obj itself if it is marked well enough.
func markDeleted(c *call.Call, obj resource.Object, o *metav1.DeleteOptions) resource.Object {
	d := c.Resource.Def
	finalizers := deletionFinalizers(c, obj, o)
	refinalized := !slices.Equal(finalizers, obj.GetFinalizers())
	var grace int64
	pending := false // a grace period runs that this request does not shorten
	if d.GracePeriod != nil {
		grace, pending = gracePeriod(c, obj, o)
	}
	stays := len(finalizers) > 0 || pending || grace > 0 || d.PendingDelete != nil && d.PendingDelete(obj)
	if !stays {
		return nil
	}
	marked := obj.GetDeletionTimestamp() != nil
	if marked && !refinalized && (pending || sameGrace(obj, grace)) {
		return obj
	}
	next := cache.Shallow(obj)
	next.SetFinalizers(finalizers)
	switch {
	case d.Terminate != nil:
		if !marked {
			next.SetDeletionTimestamp(new(metav1.NewTime(time.Now().UTC().Truncate(time.Second))))
		}
		d.Terminate(next)
	case !pending:
		setDeletion(next, grace)
	}
	return next
}

// gracePeriod is how long a graceful deletion has from now on. pending says
// that one runs already and is not shortened.
func gracePeriod(c *call.Call, obj resource.Object, o *metav1.DeleteOptions) (grace int64, pending bool) {
	running := obj.GetDeletionGracePeriodSeconds()
	if obj.GetDeletionTimestamp() == nil {
		return c.Resource.Def.GracePeriod(obj, o.GracePeriodSeconds), false
	}
	if running == nil || *running == 0 {
		return 0, false
	}
	if o.GracePeriodSeconds == nil || *o.GracePeriodSeconds >= *running {
		return *running, true
	}
	return max(0, *o.GracePeriodSeconds), false
}

func sameGrace(obj resource.Object, grace int64) bool {
	running := obj.GetDeletionGracePeriodSeconds()
	return running == nil && grace == 0 || running != nil && *running == grace
}

// setDeletion marks obj as being deleted with a grace period of so many
// seconds. A running period is shortened, counted from when it began; one that would have
// ended by then ends now, and whoever ends the object is still waited for, if there is a period at all.
func setDeletion(obj resource.Object, grace int64) {
	now := time.Now().UTC().Truncate(time.Second)
	at := metav1.NewTime(now.Add(time.Duration(grace) * time.Second))
	if t := obj.GetDeletionTimestamp(); t != nil {
		if running := obj.GetDeletionGracePeriodSeconds(); running != nil {
			if at = metav1.NewTime(t.Add(time.Duration(grace-*running) * time.Second)); at.Time.Before(now) {
				at, grace = metav1.NewTime(now), min(grace, 1)
			}
		} else {
			at = *t
		}
	} else if obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	obj.SetDeletionTimestamp(&at)
	obj.SetDeletionGracePeriodSeconds(&grace)
}

// deletionFinalizers are the finalizers the object has when the garbage
// collector's are set as the request wants it.
func deletionFinalizers(c *call.Call, obj resource.Object, o *metav1.DeleteOptions) []string {
	finalizers := obj.GetFinalizers()
	has := func(name string) bool { return slices.Contains(finalizers, name) }
	orphan, foreground := has(metav1.FinalizerOrphanDependents), has(metav1.FinalizerDeleteDependents)
	switch {
	case c.Resource.Def.NoDependents:
		orphan, foreground = false, false
	case o.OrphanDependents != nil: //nolint:staticcheck // the old form of the policy
		orphan, foreground = *o.OrphanDependents, false //nolint:staticcheck // the old form of the policy
	case o.PropagationPolicy != nil:
		orphan = *o.PropagationPolicy == metav1.DeletePropagationOrphan
		foreground = *o.PropagationPolicy == metav1.DeletePropagationForeground
	case !orphan && !foreground:
		policy := c.Resource.Def.DefaultPropagation
		if c.Resource.Version != nil {
			policy = c.Resource.Version.DefaultPropagation
		}
		orphan, foreground = policy == metav1.DeletePropagationOrphan, policy == metav1.DeletePropagationForeground
	}
	if orphan == has(metav1.FinalizerOrphanDependents) && foreground == has(metav1.FinalizerDeleteDependents) {
		return finalizers
	}
	next := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	if orphan {
		next = append(next, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		next = append(next, metav1.FinalizerDeleteDependents)
	}
	return next
}

// commitMark stores an object that is marked as being deleted.
func (w *attempt) commitMark(ctx context.Context) (*cache.Item, error) {
	w.obj.SetResourceVersion("")
	value, err := watchcache.Encode(w.c.Resource.Def, w.obj)
	if err != nil {
		return nil, err
	}
	if w.c.DryRun {
		return w.dryRunResult(w.obj), nil
	}
	return w.put(ctx, w.obj, value, nil)
}

// remove deletes the stored object. last is the state that is reported: the
// stored one, or with the update that let it go.
func (p *Pipeline) remove(ctx context.Context, c *call.Call, old *cache.Item, last resource.Object) (*cache.Item, error) {
	if c.DryRun {
		return old, nil
	}
	for {
		var tx *alloc.Tx
		if c.Resource.Def.Commit != nil {
			tx = p.alloc.Begin(ctx, c.Key(), holder(c))
			if err := c.Resource.Def.Commit(tx, nil, old.Object); err != nil {
				return nil, allocationError(c, errors.Join(err, tx.Err))
			}
		}
		txn := store.Txn{Conds: []store.Cond{{Key: c.Key(), Rev: old.Rev}}, Ops: []store.Op{{Key: c.Key()}}}
		if err := tx.AddTo(&txn); err != nil {
			return nil, err
		}
		began := time.Now()
		res, err := p.o.Store.Txn(ctx, txn)
		p.o.Reads.Tell("delete", c, began, err)
		switch {
		case err != nil:
			return nil, fmt.Errorf("delete %s: %w", c.Key(), err)
		case !res.OK && res.Now[0].Rev != old.Rev:
			return nil, errRaced
		case !res.OK:
			p.alloc.Lost(txn.Conds, res)
			continue
		}
		p.o.Reads.Answered(res.Rev)
		tx.Committed(res.Rev)
		return read.NewItem(cache.AtRevision(last, res.Rev), res.Rev), nil
	}
}

// deleters is how many objects of a collection are deleted at a time: what they
// wait for, the disk above all, they wait for together.
const deleters = 8

// DeleteAll deletes objects that a list has found, in any order. After an error nothing
// more is begun.
func (p *Pipeline) DeleteAll(ctx context.Context, c *call.Call, items []*cache.Item) error {
	warnOfNoPolicy(c)
	var next atomic.Int64
	failed := make([]error, min(deleters, len(items)))
	var wg sync.WaitGroup
	for worker := range failed {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(items)); i = next.Add(1) - 1 {
				if err := p.deleteItem(ctx, c, items[i]); err != nil {
					failed[worker] = err
					next.Store(int64(len(items)))
				}
			}
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(failed, func(err error) bool { return err != nil }); i >= 0 {
		return failed[i]
	}
	return nil
}

// deleteItem deletes an object of a collection, if it is still there. A panic is an
// error: nobody would catch it in a goroutine of a request.
func (p *Pipeline) deleteItem(ctx context.Context, c *call.Call, it *cache.Item) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("delete %s: %v", it.Key, r)
		}
	}()
	one, options := *c, *c.Delete
	one.Namespace, one.Name, one.Warnings = it.Object.GetNamespace(), it.Object.GetName(), nil
	if _, _, err := p.deleteOrMark(ctx, &one, &options); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
