package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/api/core/usage"
	"github.com/kemudi/kemudi/internal/resource"
)

// write is an object that is to be stored, in the place of old unless that is nil.
type write struct {
	counter       usage.Counter
	obj, old      resource.Object
	before, after usage.Use
}

func newWrite(c usage.Counter, obj, old resource.Object) *write {
	w := &write{counter: c, obj: obj, old: old, after: c.Of(obj)}
	if old != nil {
		w.before = c.Of(old)
	}
	return w
}

// change is a quota before and after a write is charged to it.
type change struct{ was, now *corev1.ResourceQuota }

// charges are what the write changes of the quotas. An error says, in upstream's
// words, which of them does not allow it, or for what there would have to be one.
func (w *write) charges(limits []limited, quotas []*corev1.ResourceQuota) ([]change, error) {
	if err := w.covered(limits, quotas); err != nil {
		return nil, err
	}
	var changes []change
	for _, q := range quotas {
		now, err := w.charge(q)
		if err != nil {
			return nil, err
		}
		if now != nil {
			changes = append(changes, change{q, now})
		}
	}
	return changes, nil
}

// charge returns the quota with the write charged to it; nil if nothing is.
func (w *write) charge(q *corev1.ResourceQuota) (*corev1.ResourceQuota, error) {
	names := w.counter.Names(q.Status.Hard, q.Spec.Hard)
	if len(names) == 0 {
		return nil, nil
	}
	was, is := w.old != nil && w.counter.In(q, w.old), w.counter.In(q, w.obj)
	if !was && !is {
		return nil, nil
	}
	if is {
		if err := w.mayBeCounted(q); err != nil {
			return nil, err
		}
	}
	more := w.takes(names, is, was)
	if len(more) == 0 {
		return nil, nil
	}
	if err := exceeded(q, more); err != nil {
		return nil, err
	}
	now := *q
	now.Status.Used = maps.Clone(q.Status.Used)
	if now.Status.Used == nil {
		now.Status.Used = corev1.ResourceList{}
	}
	for name, amount := range more {
		// What the quota is to count is charged even before the controller has made that
		// its status: the controller adds what was there before.
		used := sum(now.Status.Used[name], amount)
		if used.Sign() < 0 {
			used = quantity.Quantity{Format: used.Format}
		}
		now.Status.Used[name] = used
	}
	return &now, nil
}

// mayBeCounted refuses what does not say what the quota counts, and everything
// while it is not known what is taken of the quota.
func (w *write) mayBeCounted(q *corev1.ResourceQuota) error {
	names := w.counter.Names(q.Status.Hard)
	if err := w.counter.Require(names, w.obj); err != nil {
		return fmt.Errorf("failed quota: %s: %w", q.Name, err)
	}
	for _, name := range names {
		if _, ok := q.Status.Used[name]; !ok {
			return fmt.Errorf("status unknown for quota: %s, resources: %s", q.Name, joined(names))
		}
	}
	return nil
}

// takes are the amounts that the write takes or, below zero, gives back.
func (w *write) takes(names []corev1.ResourceName, is, was bool) corev1.ResourceList {
	more, now := corev1.ResourceList{}, time.Now()
	for _, name := range names {
		var amount quantity.Quantity
		if is {
			amount = w.after.At(now, name).DeepCopy()
		}
		if was {
			amount.Sub(w.before.At(now, name))
		}
		if !amount.IsZero() {
			more[name] = amount
		}
	}
	return more
}

// exceeded refuses what takes more of a quota than is left.
func exceeded(q *corev1.ResourceQuota, more corev1.ResourceList) error {
	requested, used, limited := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for name, amount := range more {
		hard, ok := q.Status.Hard[name]
		if !ok || amount.Sign() < 0 {
			continue
		}
		if total := sum(q.Status.Used[name], amount); total.Cmp(hard) > 0 {
			requested[name], used[name], limited[name] = amount, q.Status.Used[name], hard
		}
	}
	if len(requested) == 0 {
		return nil
	}
	return fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s", q.Name, shown(requested), shown(used), shown(limited))
}

// sum adds without changing what its terms share.
func sum(a, b quantity.Quantity) quantity.Quantity {
	a = a.DeepCopy()
	a.Add(b)
	return a
}

func shown(list corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		parts = append(parts, string(name)+"="+q.String())
	}
	return strings.Join(parts, ",")
}

func joined(names []corev1.ResourceName) string {
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = string(name)
	}
	return strings.Join(parts, ",")
}
