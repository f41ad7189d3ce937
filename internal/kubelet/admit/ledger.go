package admit

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Ledger keeps what the pods of a node have taken, and who waits for more. Its
// methods may be called concurrently.
type Ledger struct {
	mu struct {
		sync.Mutex
		taken   Allocations          // by the pods that are not finished, and not gone from the API
		waiting map[types.UID]func() // whom to tell when something has been given back
	}
}

// NewLedger returns one of a node without pods.
func NewLedger() *Ledger {
	l := &Ledger{}
	l.mu.taken, l.mu.waiting = Allocations{}, map[types.UID]func(){}
	return l
}

// Take notes what the pod takes, unless refuse, which is called with what the others
// have taken, gives a reason against it. Nil takes the pod as it is: it runs already.
func (l *Ledger) Take(pod *v1.Pod, refuse func(Allocations, Allocation) (reason, message string)) (reason, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := AllocationOf(pod)
	if refuse != nil {
		if reason, message = refuse(l.mu.taken, a); reason != "" {
			return reason, message
		}
	}
	l.mu.taken[pod.UID] = a
	return "", ""
}

// Resize lets the pod have what its spec asks for now, out of what the node has for
// pods, or says why not: then it keeps what it has. If others may make room for it,
// again is called, by any goroutine, when one has. It must not block.
func (l *Ledger) Resize(pod *v1.Pod, allocatable v1.ResourceList, again func()) (reason, message string) {
	asked := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.waiting, pod.UID)
	mine, ok := l.mu.taken[pod.UID]
	if !ok {
		return "", "" // rejected or finished
	}
	delete(l.mu.taken, pod.UID)
	defer func() { l.mu.taken[pod.UID] = mine }()
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if !slices.Contains([]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}, name) {
			continue
		}
		want, have, old := asked[name], allocatable[name], mine.Requests[name]
		if want.Cmp(old) <= 0 {
			continue // less always fits
		}
		amount := Amount(name)
		if want.Cmp(have) > 0 {
			return v1.PodReasonInfeasible, fmt.Sprintf("Node didn't have enough capacity: %s, requested: %d, capacity: %d", name, amount(want), amount(have))
		}
		used := l.mu.taken.Used(name)
		left := have.DeepCopy()
		left.Sub(used)
		if want.Cmp(left) > 0 {
			l.mu.waiting[pod.UID] = again
			return v1.PodReasonDeferred, fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, amount(want), amount(used), amount(have))
		}
	}
	mine.Requests = asked
	return "", ""
}

// Release gives back what the pod took: it has finished, or has left the API.
func (l *Ledger) Release(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.mu.taken[uid]; !ok {
		return
	}
	delete(l.mu.taken, uid)
	for _, tell := range l.mu.waiting {
		tell()
	}
}

// Forget is Release for a pod that is gone.
func (l *Ledger) Forget(uid types.UID) {
	l.mu.Lock()
	delete(l.mu.waiting, uid)
	l.mu.Unlock()
	l.Release(uid)
}

// Burstable is what the burstable pods have asked for together, in thousandths of a CPU.
func (l *Ledger) Burstable() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := int64(0)
	for _, a := range l.mu.taken {
		if a.QOS == v1.PodQOSBurstable {
			cpu := a.Requests[v1.ResourceCPU]
			sum += cpu.MilliValue()
		}
	}
	return sum
}
