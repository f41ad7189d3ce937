package scheduler

import (
	"cmp"
	"container/heap"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// leftoverAfter is when a pod is tried again although nothing happened (B4).
const leftoverAfter = 5 * time.Minute

// place is where a pending pod stands.
type place string

// The places.
const (
	active        place = "active"        // to be tried now
	backoff       place = "backoff"       // to be tried when its wait is over
	unschedulable place = "unschedulable" // to be tried after an event that helps
	gated         place = "gated"         // has scheduling gates, or waits for what it cannot do without: not to be tried
	grouped       place = "grouped"       // waits with its group, which stands in the queue for it
	asking        place = "asking"        // extenders are to be asked about it, after others
	flying        place = "flying"        // has a place, or extenders are asked for one; the binding is under way
)

// pending is a pod without a node.
type pending struct {
	pod   *snapshot.Pod
	by    *profile // how it is scheduled
	place place

	refused  uint32        // plugins that refused it at the last attempt; all bits: any event may help
	attempts int           // so far
	failures int           // that count for the wait
	wait     time.Duration // after the last attempt
	erred    bool          // the last attempt failed for no fault of the pod's; changes only between places
	flushed  bool          // it is tried although nothing has happened since the last attempt
	together bool          // it is placed with its group, or not at all

	first  time.Time       // when it was first tried
	since  time.Time       // when it came to its place; for back-off and unschedulable: when its last attempt was
	seq    uint64          // order of arrival
	among  *snapshot.Shape // while it is unschedulable: it wakes with the pods of this shape; nil: by itself
	index  int             // in the heap of its place
	names  string          // the node that its status names, under which the queue has it
	awaits string          // while it is gated, the key of what it waits for; empty: a change of the pod
	stated stated
	flight *flight // while it is flying; nil before it has a place
	group  *group  // not a pod, but all of a group that wait together; nil: a pod
}

// stated is what the pod's status says, or will when the call under way is done.
type stated struct{ reason, message, nominated string }

// due is when a pod that waits is to be tried.
func (p *pending) due() time.Time {
	if p.place == unschedulable {
		return p.since.Add(leftoverAfter)
	}
	return p.since.Add(p.wait)
}

// queue is all pending pods of the scheduler. It knows no time but what its
// callers say.
type queue struct {
	pods map[types.UID]*pending

	active, backoff, unschedulable heapOf
	asking                         heapOf
	erred                          heapOf                     // in back-off because of an error
	byRefused                      map[refusedBy]*refusedPods // unschedulable pods
	awaited                        itemsBy                    // gated pods that wait for something, by its key
	named                          itemsBy                    // pods whose status names a node, by that
	counts                         map[place]int
	seq                            uint64
	groups                         bool // pods may wait with their group

	// How long a pod waits after an attempt that failed, at first and at most; it
	// doubles each time.
	initial, longest time.Duration

	// came is told which event has brought an item to a place; nil: nobody is.
	came func(event string, item *pending, to place)
}

// refusedBy is plugins of a profile that refused a pod, by index.
type refusedBy struct {
	by      *profile
	plugins uint32
}

// refusedPods are pods that the same plugins refused.
type refusedPods struct {
	count int
	// alike are pods that an event wakes all or none of, by their shape. apart are to be asked one by one.
	alike map[*snapshot.Shape]items
	apart items
}

type items map[*pending]struct{}

// itemsBy are items by a key.
type itemsBy map[string]items

func (m itemsBy) put(key string, item *pending) {
	if m[key] == nil {
		m[key] = items{}
	}
	m[key][item] = struct{}{}
}

func (m itemsBy) drop(key string, item *pending) {
	if delete(m[key], item); len(m[key]) == 0 {
		delete(m, key)
	}
}

// oneOf returns any of some.
func oneOf(some items) *pending {
	for item := range some {
		return item
	}
	return nil
}

func newQueue(initial, longest time.Duration) *queue {
	return &queue{
		initial: initial, longest: longest,
		pods:          map[types.UID]*pending{},
		active:        heapOf{before: moreUrgent},
		asking:        heapOf{before: moreUrgent},
		backoff:       heapOf{before: dueFirst},
		erred:         heapOf{before: dueFirst},
		unschedulable: heapOf{before: dueFirst},
		byRefused:     map[refusedBy]*refusedPods{},
		awaited:       itemsBy{},
		named:         itemsBy{},
		counts:        map[place]int{},
	}
}

// moreUrgent is the order of trying: by priority, then by waiting time.
func moreUrgent(a, b *pending) bool {
	if a.pod.Priority != b.pod.Priority {
		return a.pod.Priority > b.pod.Priority
	}
	return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.seq, b.seq)) < 0
}

func dueFirst(a, b *pending) bool {
	return cmp.Or(a.due().Compare(b.due()), cmp.Compare(a.seq, b.seq)) < 0
}

// get returns a pending pod, or nil.
func (q *queue) get(uid types.UID) *pending { return q.pods[uid] }

// add takes in a pod that is not there yet.
func (q *queue) add(p *snapshot.Pod, by *profile, now time.Time) *pending {
	item := &pending{pod: p, by: by, since: now, index: -1, together: q.groups && core.PodGroupName(p.Obj) != ""}
	q.pods[p.Obj.UID] = item
	q.name(item)
	q.put(item, q.entry(item))
	return item
}

// name takes in which node the status of a pod names.
func (q *queue) name(item *pending) { q.rename(item, item.pod.Obj.Status.NominatedNodeName) }

func (q *queue) rename(item *pending, node string) {
	if node == item.names {
		return
	}
	q.named.drop(item.names, item)
	if item.names = node; node != "" {
		q.named.put(node, item)
	}
}

// entry is where a pod starts.
func (q *queue) entry(item *pending) place {
	item.awaits = ""
	if len(item.pod.Obj.Spec.SchedulingGates) > 0 && item.by.plugins.Gated {
		return gated
	}
	for _, p := range item.by.plugins.PreEnqueuers {
		if key, wait := p.PreEnqueue(item.by.snapshot, item.pod); wait {
			item.awaits = key
			return gated
		}
	}
	if item.together {
		return grouped
	}
	return active
}

// reenter looks anew at the pods that wait for what has the key, and returns those that
// are to be tried now, alone or with their group.
func (q *queue) reenter(key string, now time.Time) (tried []*pending) {
	for item := range q.awaited[key] {
		q.leave(item)
		item.since = now
		q.put(item, q.entry(item))
		if item.place != gated {
			tried = append(tried, item)
		}
	}
	return tried
}

// part lets a pod go without its group from now on.
func (q *queue) part(item *pending, now time.Time) {
	q.leave(item)
	item.together, item.since = false, now
	q.put(item, active)
}

// retire takes a group out of the queue, if it stands there.
func (q *queue) retire(item *pending) {
	if item.place != "" {
		q.leave(item)
		item.place = ""
	}
}

// replace takes in a new form of a pod that asks for something else now, and
// has it tried again.
func (q *queue) replace(item *pending, p *snapshot.Pod, now time.Time) {
	q.leave(item)
	item.pod = p
	q.name(item)
	switch to := q.entry(item); {
	case to == active && (item.place == backoff || item.place == unschedulable):
		q.put(item, item.place)
		q.wake(item, now)
	default:
		item.since = now
		q.put(item, to)
	}
}

// remove forgets a pod.
func (q *queue) remove(item *pending) {
	q.leave(item)
	q.rename(item, "")
	delete(q.pods, item.pod.Obj.UID)
}

// pop takes the most urgent pod; it is flying then. If none is to be tried now,
// one that only waits for its back-off is taken: nothing else is to be done,
// and an event has said that it may succeed.
func (q *queue) pop(now time.Time) *pending {
	q.ripen(now)
	item := q.active.first()
	if item == nil {
		if item = q.backoff.first(); item == nil {
			return nil
		}
		q.tell("PopFromBackoffQ", item, active)
	}
	q.depart(item, now)
	return item
}

// depart has a pod fly.
func (q *queue) depart(item *pending, now time.Time) {
	q.leave(item)
	item.attempts++
	if item.first.IsZero() {
		item.first = now
	}
	q.put(item, flying)
}

// ask puts a popped pod aside until extenders can be asked about it.
func (q *queue) ask(item *pending) {
	q.leave(item)
	item.attempts--
	q.put(item, asking)
}

// answer takes the most urgent pod that extenders are to be asked about.
func (q *queue) answer() *pending {
	item := q.asking.first()
	if item == nil {
		return nil
	}
	q.leave(item)
	item.attempts++
	q.put(item, flying)
	return item
}

// again has a popped pod tried again at once.
func (q *queue) again(item *pending) {
	q.leave(item)
	q.put(item, active)
}

// ripen moves what is due to the active pods.
func (q *queue) ripen(now time.Time) {
	for _, h := range []*heapOf{&q.backoff, &q.erred, &q.unschedulable} {
		for item := h.first(); item != nil && !item.due().After(now); item = h.first() {
			event := "BackoffComplete"
			if item.place == unschedulable {
				event, item.flushed = "UnschedulableTimeout", true
			}
			q.leave(item)
			item.since = now
			q.put(item, active)
			q.tell(event, item, active)
		}
	}
}

func (q *queue) tell(event string, item *pending, to place) {
	if q.came != nil {
		q.came(event, item, to)
	}
}

// next is when ripen will have something to do; zero: never.
func (q *queue) next() time.Time {
	var next time.Time
	for _, h := range []*heapOf{&q.backoff, &q.erred, &q.unschedulable} {
		if item := h.first(); item != nil && (next.IsZero() || item.due().Before(next)) {
			next = item.due()
		}
	}
	return next
}

// refuse puts a popped pod aside that plugins refused.
func (q *queue) refuse(item *pending, refused uint32, now time.Time) {
	q.leave(item)
	item.refused, item.erred = refused, false
	q.fail(item, unschedulable, now)
}

// retry puts a popped pod aside whose attempt failed otherwise.
func (q *queue) retry(item *pending, now time.Time) {
	q.leave(item)
	item.erred = true
	q.fail(item, backoff, now)
}

func (q *queue) fail(item *pending, to place, now time.Time) {
	item.flushed = false
	item.failures++
	item.wait = min(q.initial<<min(item.failures-1, 10), q.longest)
	item.since = now
	if item.together {
		to = grouped
	}
	q.put(item, to)
	q.tell("ScheduleAttemptFailure", item, to)
}

// wake has an unschedulable pod tried again, when its wait is over.
func (q *queue) wake(item *pending, now time.Time) {
	if item.place != unschedulable {
		return
	}
	q.leave(item)
	if item.since.Add(item.wait).After(now) {
		q.put(item, backoff)
		return
	}
	item.since = now
	q.put(item, active)
}

func (q *queue) put(item *pending, to place) {
	item.place = to
	q.seq++
	item.seq = q.seq
	q.counts[to]++
	if to == gated && item.awaits != "" {
		q.awaited.put(item.awaits, item)
	}
	if h := q.heap(item); h != nil {
		heap.Push(h, item)
	}
	if to == unschedulable {
		q.group(item)
	}
}

// group puts an unschedulable pod to those that the same plugins refused.
func (q *queue) group(item *pending) {
	key := refusedBy{item.by, item.refused}
	by := q.byRefused[key]
	if by == nil {
		by = &refusedPods{alike: map[*snapshot.Shape]items{}, apart: items{}}
		q.byRefused[key] = by
	}
	by.count++
	item.among = nil
	if item.group == nil && item.by.plugins.Alike(item.refused) {
		item.among = item.by.snapshot.Shape(item.pod)
	}
	if item.among == nil {
		by.apart[item] = struct{}{}
		return
	}
	if by.alike[item.among] == nil {
		by.alike[item.among] = items{}
	}
	by.alike[item.among][item] = struct{}{}
}

// ungroup undoes group.
func (q *queue) ungroup(item *pending) {
	key := refusedBy{item.by, item.refused}
	by := q.byRefused[key]
	if item.among == nil {
		delete(by.apart, item)
	} else if delete(by.alike[item.among], item); len(by.alike[item.among]) == 0 {
		delete(by.alike, item.among)
	}
	if by.count--; by.count == 0 {
		delete(q.byRefused, key)
	}
}

func (q *queue) leave(item *pending) {
	q.counts[item.place]--
	if item.place == gated && item.awaits != "" {
		q.awaited.drop(item.awaits, item)
	}
	if h := q.heap(item); h != nil {
		heap.Remove(h, item.index)
	}
	if item.place == unschedulable {
		q.ungroup(item)
	}
}

// heap is where a pod is kept that stands at its place; nil: only by UID.
func (q *queue) heap(item *pending) *heapOf {
	switch item.place {
	case active:
		return &q.active
	case backoff:
		if item.erred {
			return &q.erred
		}
		return &q.backoff
	case unschedulable:
		return &q.unschedulable
	case asking:
		return &q.asking
	}
	return nil
}

// heapOf is a heap of pending pods.
type heapOf struct {
	before func(a, b *pending) bool
	items  []*pending
}

var _ heap.Interface = (*heapOf)(nil)

func (h *heapOf) first() *pending {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

// Len, Less, Swap, Push and Pop are for package heap.
func (h *heapOf) Len() int           { return len(h.items) }
func (h *heapOf) Less(i, j int) bool { return h.before(h.items[i], h.items[j]) }
func (h *heapOf) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].index, h.items[j].index = i, j
}
func (h *heapOf) Push(x any) {
	item := x.(*pending)
	item.index = len(h.items)
	h.items = append(h.items, item)
}
func (h *heapOf) Pop() any {
	last := len(h.items) - 1
	item := h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	return item
}
