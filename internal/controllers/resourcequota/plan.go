package resourcequota

import (
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/api/core/usage"
)

// counted is what the objects of a namespace take of a quota, all at one revision.
type counted struct {
	quota *corev1.ResourceQuota // as it was then
	used  corev1.ResourceList
	again time.Time // when objects take less without being changed; zero: never
}

// newCounted counts nothing yet. Amounts that no kind is known for are left out, as
// upstream does.
func newCounted(q *corev1.ResourceQuota) *counted {
	return &counted{quota: q, used: corev1.ResourceList{}}
}

// add counts the objects of one resource.
func (c *counted) add(names []corev1.ResourceName, objects iter.Seq[*usage.Use]) {
	now, sums := time.Now(), make([]quantity.Quantity, len(names))
	for i := range sums {
		sums[i].Format = quantity.DecimalSI
	}
	for use := range objects {
		for i, name := range names {
			sums[i].Add(use.At(now, name))
		}
		if ended, at := use.Ends(now); !ended && !at.IsZero() && (c.again.IsZero() || at.Before(c.again)) {
			c.again = at
		}
	}
	for i, name := range names {
		sum := c.used[name]
		sum.Add(sums[i])
		c.used[name] = sum
	}
}

// right says that the quota's status tells what was counted.
func (c *counted) right() bool {
	return usage.SameAmounts(c.quota.Status.Hard, c.quota.Spec.Hard) && usage.SameAmounts(c.quota.Status.Used, c.used)
}

// status is what a state of the quota should say: what it says, with what the count
// found to be otherwise.
func (c *counted) status(q *corev1.ResourceQuota) corev1.ResourceQuotaStatus {
	s := corev1.ResourceQuotaStatus{Hard: q.Spec.Hard.DeepCopy(), Used: corev1.ResourceList{}}
	for name, found := range c.used {
		used := found.DeepCopy()
		used.Sub(c.quota.Status.Used[name])
		used.Add(q.Status.Used[name])
		if used.Sign() < 0 {
			used = quantity.Quantity{Format: found.Format}
		}
		s.Used[name] = used
	}
	return s
}
