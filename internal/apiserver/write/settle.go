package write

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/kemudi/kemudi/internal/cache"
)

// mutate asks the first half of admission. What it leaves of managed fields that nobody can
// read is not taken over.
func (w *attempt) mutate(ctx context.Context) error {
	before := w.obj.GetManagedFields()
	if err := w.admit(ctx, w.p.o.Admission.Mutate); err != nil {
		return err
	}
	w.first = len(w.relied)
	after := w.obj.GetManagedFields()
	if w.trusted || sameEntries(before, after) {
		return nil
	}
	if err := managedfields.ValidateManagedFields(after); err != nil {
		w.c.Warn(fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; "+
			"this could be caused by an outdated mutating admission controller; please fix your requests: %v", err))
		w.obj.SetManagedFields(before)
	}
	return nil
}

// sameEntries reports that the entries are those of one object, which nobody has replaced.
func sameEntries(a, b []metav1.ManagedFieldsEntry) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// settle carries an object that is valid into the store: with what is allocated for it, which the second
// half of admission sees. taken is an object that has its name, nil for none, of which a client hears when
// nothing else is wrong.
func (w *attempt) settle(ctx context.Context, taken *cache.Item) (*cache.Item, error) {
	for ask := w.p.o.Admission.Validate; ; {
		if taken == nil && (w.item == nil || !w.leaves()) {
			if err := w.allocate(ctx); err != nil {
				return nil, err
			}
		}
		if err := w.admit(ctx, ask); err != nil {
			return nil, err
		}
		if taken != nil {
			return nil, w.c.AlreadyExists(taken.Object.GetDeletionTimestamp() != nil)
		}
		item, err := w.commit(ctx)
		changed := (*errRelied)(nil)
		switch {
		case errors.As(err, &changed): // its namespace, or a quota
			if err := w.c.Resource.Cache.WaitRev(ctx, changed.rev); err != nil { // the caches advance together
				return nil, err
			}
			ask, w.first = w.p.o.Admission.Recheck, 0
		case errors.Is(err, errAllocationLost): // and with it the object is another
			ask = w.p.o.Admission.Validate
		default:
			return item, err
		}
		w.end()
		w.relied, w.carried = slices.Clip(w.relied[:w.first]), nil
	}
}
