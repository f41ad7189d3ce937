package admit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
)

// Ledger keeps what the pods of a node have taken, and who waits for more. Its
// methods may be called concurrently.
type Ledger struct {
	mu struct {
		sync.Mutex
		taken   Allocations // by the pods that are not finished, and not gone from the API
		waiting map[types.UID]*waiter
	}
}

// waiter is a pod that waits for what others have.
type waiter struct {
	pod         *v1.Pod
	asked       v1.ResourceList
	allocatable v1.ResourceList
	since       time.Time
	tell        func(trigger string)
}

// NewLedger returns one of a node without pods.
func NewLedger() *Ledger {
	l := &Ledger{}
	l.mu.taken, l.mu.waiting = Allocations{}, map[types.UID]*waiter{}
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
// pods, or says why not: then it keeps what it has. A resize for which other pods may still
// make room (Deferred) waits here. Once they have, it is granted, and again is called, by any
// goroutine, with what they did. again must not block.
func (l *Ledger) Resize(pod *v1.Pod, allocatable v1.ResourceList, again func(trigger string)) (reason, message string) {
	w := &waiter{pod, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}), allocatable, time.Now(), again}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.mu.waiting[pod.UID]; before != nil && before.pod.Generation == pod.Generation {
		w.since = before.since
	}
	delete(l.mu.waiting, pod.UID)
	mine, ok := l.mu.taken[pod.UID]
	if !ok {
		return "", "" // rejected or finished
	}
	if reason, message = l.resizeLocked(w); reason == v1.PodReasonDeferred {
		l.mu.waiting[pod.UID] = w
	}
	if reason == "" && less(w.asked, mine.Requests) {
		l.giveLocked("pod_resized")
	}
	return reason, message
}

// Forgo has a pod not wait for more any longer.
func (l *Ledger) Forgo(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.waiting, uid)
}

// resizeLocked lets a pod that has taken something have what it asks for, or says why not.
func (l *Ledger) resizeLocked(w *waiter) (reason, message string) {
	mine := l.mu.taken[w.pod.UID]
	delete(l.mu.taken, w.pod.UID)
	defer func() { l.mu.taken[w.pod.UID] = mine }()
	for _, name := range slices.Sorted(maps.Keys(w.asked)) {
		if !slices.Contains(resized, name) {
			continue
		}
		want, have, old := w.asked[name], w.allocatable[name], mine.Requests[name]
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
			return v1.PodReasonDeferred, fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, amount(want), amount(used), amount(have))
		}
	}
	mine.Requests = w.asked
	return "", ""
}

// resized are the resources that may change while a pod runs.
var resized = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// less reports whether a list asks for less of something that may change than another.
func less(a, b v1.ResourceList) bool {
	return slices.ContainsFunc(resized, func(name v1.ResourceName) bool {
		q := a[name]
		return q.Cmp(b[name]) < 0
	})
}

// giveLocked gives what there is now to those who wait, what matters most first: by
// priority, then by quality of service, then who has waited longest. trigger is what others
// have done, in upstream's words.
func (l *Ledger) giveLocked(trigger string) {
	class := []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}
	for _, w := range slices.SortedFunc(maps.Values(l.mu.waiting), func(a, b *waiter) int {
		return cmp.Or(
			cmp.Compare(ptr.Deref(b.pod.Spec.Priority, 0), ptr.Deref(a.pod.Spec.Priority, 0)),
			slices.Index(class, core.QOSClass(a.pod))-slices.Index(class, core.QOSClass(b.pod)),
			a.since.Compare(b.since),
		)
	}) {
		if reason, _ := l.resizeLocked(w); reason == "" {
			delete(l.mu.waiting, w.pod.UID)
			w.tell(trigger)
		}
	}
}

// Release gives back what the pod took: it has finished, or has left the API.
func (l *Ledger) Release(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.waiting, uid)
	if _, ok := l.mu.taken[uid]; !ok {
		return
	}
	delete(l.mu.taken, uid)
	l.giveLocked("pods_removed")
}

// Asked is what the pods of classes have asked for together.
type Asked struct {
	CPU                int64 // of burstable ones, in thousandths
	Guaranteed, Memory int64 // bytes of guaranteed ones, and of burstable ones
}

// Asked is what the pods have asked for together.
func (l *Ledger) Asked() (sum Asked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.mu.taken {
		memory := a.Requests[v1.ResourceMemory]
		switch a.QOS {
		case v1.PodQOSGuaranteed:
			sum.Guaranteed += memory.Value()
		case v1.PodQOSBurstable:
			cpu := a.Requests[v1.ResourceCPU]
			sum.CPU += cpu.MilliValue()
			sum.Memory += memory.Value()
		}
	}
	return sum
}
