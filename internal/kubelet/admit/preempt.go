package admit

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Preempt takes on a pod that the cluster cannot do without, and that refuse gives a reason against, in place of others,
// which it returns: as few as will do, best-effort ones rather than burstable ones, and those rather than guaranteed
// ones; last ones that the cluster cannot do without either, if they matter less. What they had counts as given back, as that of pods that are gone. None: that would not help.
func (l *Ledger) Preempt(pod *v1.Pod, refuse func(Allocations, Allocation) (reason, message string)) (victims []types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := AllocationOf(pod)
	rest := maps.Clone(l.mu.taken)
	fits := func() bool {
		reason, _ := refuse(rest, own)
		return reason == ""
	}
	var gone []types.UID
	for _, uid := range l.mu.taken.cheapestFirst() {
		if fits() {
			break
		}
		if rest[uid].givesWayTo(&own) {
			gone = append(gone, uid)
			delete(rest, uid)
		}
	}
	if !fits() {
		return nil
	}
	for _, uid := range slices.Backward(gone) { // which of them is not needed
		if rest[uid] = l.mu.taken[uid]; fits() {
			continue
		}
		delete(rest, uid)
		victims = append(victims, uid)
	}
	for _, uid := range victims {
		delete(l.mu.taken, uid)
		delete(l.mu.waiting, uid)
	}
	l.mu.taken[pod.UID] = own
	return victims
}

// givesWayTo reports whether a pod may be ended for one that the cluster cannot do without. A static pod has no priority, and stays.
func (a Allocation) givesWayTo(other *Allocation) bool {
	return !a.Critical || a.Priority != 0 && a.Priority < other.Priority
}

// cheapestFirst orders pods by what is lost with them.
func (as Allocations) cheapestFirst() []types.UID {
	critical, class := []bool{false, true}, []v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed}
	return slices.SortedFunc(maps.Keys(as), func(x, y types.UID) int {
		a, b := as[x], as[y]
		return cmp.Or(
			slices.Index(critical, a.Critical)-slices.Index(critical, b.Critical),
			slices.Index(class, a.QOS)-slices.Index(class, b.QOS), cmp.Compare(a.Priority, b.Priority),
			b.Created.Compare(a.Created), cmp.Compare(x, y), // of those that are alike, the youngest
		)
	})
}
