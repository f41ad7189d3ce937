package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/workload"
)

// Bounds of one look, which keep a large job from holding up others and its
// status from growing.
const (
	maxMoves = 500 // pods that are created or cancelled
	maxFreed = 500 // pods that are counted
)

// view is a job with its pods as they are at one time.
type view struct {
	job  *batchv1.Job
	pods []*corev1.Pod // that the job controls
	now  time.Time
	back *backoff // of the failures that the status knows; nil: it is not remembered
}

// plan is what is next for a job. It is done from the top down.
type plan struct {
	create []newPod
	cancel []*corev1.Pod     // active pods that are too many: they go, and do not count
	status batchv1.JobStatus // if all of that was done
	back   backoff           // once the status is stored, as what follows
	free   []*corev1.Pod     // lose their finalizer (J2)
	stop   []*corev1.Pod     // active pods of a job that is to end: they go after that
	events []event
	ruled  map[batchv1.PodFailurePolicyAction]int // failed pods that rules were about and the status now names

	after time.Duration // until time alone changes the plan; 0: never
	more  bool          // the bounds of one look have left something over
}

// newPod is a pod that is to be made.
type newPod struct {
	index  int32       // noIndex: it has none
	failed *corev1.Pod // whose place it takes, where failures are counted for each index
}

// event is something that people are told of a job.
type event struct{ kind, reason, message string }

// next decides what is next.
func (v *view) next() plan {
	p := plan{status: *v.job.Status.DeepCopy()}
	if p.status.UncountedTerminatedPods == nil {
		p.status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	if p.status.StartTime == nil && !v.suspended() {
		p.status.StartTime = v.stamp()
	}
	t := v.tally()
	p.status.Active, p.status.Ready, p.status.Terminating = int32(len(t.active)), ptr.To(ready(t.active)), ptr.To(t.terminating)
	end := v.verdict(t)
	if end == nil && v.job.DeletionTimestamp == nil {
		v.manage(t, &p)
	}
	if end == nil && len(t.active)+len(p.create) == 0 {
		end = v.completed(t)
	}
	if end == nil && v.job.DeletionTimestamp == nil {
		v.suspend(&p)
		if left, ok := v.deadline(p.status.StartTime); ok {
			p.wait(left)
		}
	}
	v.settle(t, &p)
	v.name(t, end, &p)
	if end != nil {
		v.end(t, end, &p)
	}
	return p
}

// tally is what there is of a job, counted.
type tally struct {
	active            []*corev1.Pod // those that go first, if some must, first
	terminating       int32
	succeeded, failed int32   // those included that the status does not know of yet
	back, held        backoff // before and after those
	tracked           int     // pods that have the finalizer
	// Those that the status names and has not counted, and whether they have the finalizer.
	named     map[types.UID]bool
	completed batch.Indexes         // of an Indexed job
	lost      batch.Indexes         // that failed for good, where each index has a limit
	last      map[int32]*corev1.Pod // by index, the failed pod that waits for its successor
}

func (v *view) tally() *tally {
	s := &v.job.Status
	t := &tally{succeeded: s.Succeeded, failed: s.Failed, named: map[types.UID]bool{}}
	if u := s.UncountedTerminatedPods; u != nil {
		for _, uid := range u.Succeeded {
			t.named[uid] = false
		}
		for _, uid := range u.Failed {
			t.named[uid] = false
		}
		t.succeeded += int32(len(u.Succeeded))
		t.failed += int32(len(u.Failed))
	}
	var done []int32
	var before, ended []*corev1.Pod
	for _, p := range v.pods {
		switch {
		case active(p):
			t.active = append(t.active, p)
		case terminating(p):
			t.terminating++
		}
		if !tracked(p) {
			if finished(p) {
				before = append(before, p)
			}
			continue
		}
		t.tracked++
		if _, named := t.named[p.UID]; named {
			t.named[p.UID] = true
			before = append(before, p)
			continue
		}
		switch {
		case !v.belongs(p):
		case p.Status.Phase == corev1.PodSucceeded:
			t.succeeded++
			ended = append(ended, p)
			done = append(done, indexOf(p))
		case v.failed(p):
			ended = append(ended, p)
			if v.matchFailure(p).counts {
				t.failed++
			}
		}
	}
	if v.back != nil {
		t.back = *v.back
	} else {
		t.back = backoff{}.after(before)
	}
	t.held = t.back.after(ended)
	workload.Rank(t.active, nil, v.now)
	if v.indexed() {
		t.completed = v.stored(s.CompletedIndexes).With(done...)
		t.succeeded = t.completed.Total()
	}
	if v.perIndex() {
		t.lost = v.failedIndexes()
		t.last = v.lastFailed(t.completed.Union(t.lost).Union(indexesOf(t.active)))
	}
	return t
}

// active says that a pod is neither finished nor being deleted.
func active(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && !finished(p) }

// terminating says that a pod is being deleted and has not finished.
func terminating(p *corev1.Pod) bool { return p.DeletionTimestamp != nil && !finished(p) }

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func tracked(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) }

// failed says that a pod counts as failed: one that is being deleted, too,
// unless it is to be replaced only when it has ended.
func (v *view) failed(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || !v.replacesFailedOnly() && terminating(p)
}

func (v *view) replacesFailedOnly() bool {
	return ptr.Deref(v.job.Spec.PodReplacementPolicy, batchv1.TerminatingOrFailed) == batchv1.Failed || v.job.Spec.PodFailurePolicy != nil
}

func (v *view) suspended() bool { return ptr.Deref(v.job.Spec.Suspend, false) }

func (v *view) stamp() *metav1.Time { return ptr.To(metav1.NewTime(v.now).Rfc3339Copy()) }

// manage makes the number of active pods right: either some go or some come.
func (v *view) manage(t *tally, p *plan) {
	want := v.wanted(t)
	strays, kept := v.strays(t.active)
	p.cancel = append(strays, kept[:max(0, int32(len(kept))-want)]...)
	if v.suspended() {
		p.cancel = t.active
	}
	if len(p.cancel) > 0 {
		p.more = len(p.cancel) > maxMoves
		p.cancel = p.cancel[:min(len(p.cancel), maxMoves)]
		gone := int32(len(p.cancel))
		p.status.Active -= gone
		*p.status.Ready -= ready(p.cancel)
		*p.status.Terminating += gone
		return
	}
	missing := want - int32(len(t.active))
	if v.replacesFailedOnly() {
		missing -= t.terminating
	}
	if missing > 0 && !v.suspended() {
		v.create(t, min(missing, maxMoves), p)
		p.more = missing > maxMoves && len(p.create) == maxMoves
		p.status.Active += int32(len(p.create))
	}
}

// wanted is how many pods are to be active.
func (v *view) wanted(t *tally) int32 {
	parallelism := ptr.Deref(v.job.Spec.Parallelism, 1)
	switch {
	case v.job.Spec.Completions != nil:
		return max(0, min(*v.job.Spec.Completions-t.succeeded, parallelism))
	case t.succeeded > 0: // what is running knows whether there is work left
		return int32(len(t.active))
	}
	return parallelism
}

// create chooses the pods to be made, n at the most, unless failures hold them back.
func (v *view) create(t *tally, n int32, p *plan) {
	if !v.perIndex() {
		if p.wait(t.held.left(v.now)) {
			return
		}
	}
	if !v.indexed() {
		p.create = slices.Repeat([]newPod{{index: noIndex}}, int(n))
		return
	}
	taken := t.completed.Union(t.lost).Union(indexesOf(t.active))
	if v.replacesFailedOnly() {
		taken = taken.Union(indexesOf(slices.DeleteFunc(slices.Clone(v.pods), func(p *corev1.Pod) bool { return !terminating(p) })))
	}
	for _, index := range taken.Gaps(int(n), *v.job.Spec.Completions) {
		failed := t.last[index]
		if !p.wait(indexBackoff(failed).left(v.now)) {
			p.create = append(p.create, newPod{index, failed})
		}
	}
}

// wait looks again in d at the latest; it is false if there is nothing to wait for.
func (p *plan) wait(d time.Duration) bool {
	if d > 0 && (p.after == 0 || d < p.after) {
		p.after = d
	}
	return d > 0
}

// settle adds those to the counters that have lost their finalizer (J3).
func (v *view) settle(t *tally, p *plan) {
	u := p.status.UncountedTerminatedPods
	before := int32(len(u.Succeeded))
	u.Succeeded = slices.DeleteFunc(u.Succeeded, func(uid types.UID) bool { return !t.named[uid] })
	p.status.Succeeded += before - int32(len(u.Succeeded))
	before = int32(len(u.Failed))
	u.Failed = slices.DeleteFunc(u.Failed, func(uid types.UID) bool { return !t.named[uid] })
	p.status.Failed += before - int32(len(u.Failed))
	if v.indexed() {
		p.status.Succeeded, p.status.CompletedIndexes = t.completed.Total(), t.completed.String()
	}
	if v.perIndex() {
		p.status.FailedIndexes = ptr.To(t.lost.String())
	}
}

// name names those that ended, and frees what is named (J2). When the job goes,
// or is to end (end is why), all pods are free.
func (v *view) name(t *tally, end *batchv1.JobCondition, p *plan) {
	u := p.status.UncountedTerminatedPods
	var named []*corev1.Pod
	for _, pod := range v.pods {
		failed := v.failed(pod)
		switch {
		case !tracked(pod):
			if end != nil && active(pod) { // we were killed between freeing and stopping it
				p.stop = append(p.stop, pod)
			}
			continue
		case v.job.DeletionTimestamp != nil, end != nil, pod.Status.Phase == corev1.PodSucceeded:
		case !failed, t.last[indexOf(pod)] == pod:
			continue
		}
		if len(p.free) == maxFreed {
			p.more = true
			break
		}
		p.free = append(p.free, pod)
		if end != nil && active(pod) {
			p.stop = append(p.stop, pod)
		}
		if _, ok := t.named[pod.UID]; ok || !v.belongs(pod) {
			continue
		}
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			if !v.indexed() { // where there are indexes, they tell who is counted
				u.Succeeded = append(u.Succeeded, pod.UID)
			}
		case failed, end != nil && end.Type == batchv1.JobFailureTarget:
			m := v.matchFailure(pod)
			if m.counts {
				u.Failed = append(u.Failed, pod.UID)
			}
			if m.action != "" {
				p.rule(m.action)
			}
		default:
			continue
		}
		named = append(named, pod)
	}
	p.back = t.back.after(named)
}

// rule notes that a rule of the failure policy was about a pod.
func (p *plan) rule(action batchv1.PodFailurePolicyAction) {
	if p.ruled == nil {
		p.ruled = map[batchv1.PodFailurePolicyAction]int{}
	}
	p.ruled[action]++
}

// action is what the plan comes to, as metrics have it.
func (p *plan) action() string {
	switch {
	case len(p.create) > 0:
		return lookCreates
	case len(p.cancel)+len(p.stop) > 0:
		return lookDeletes
	}
	return lookTracks
}

// end says that the job is to end, and that it has ended when nothing is left of
// it (J5).
func (v *view) end(t *tally, end *batchv1.JobCondition, p *plan) {
	p.status.Active -= int32(len(p.stop))
	*p.status.Ready -= ready(p.stop)
	*p.status.Terminating += int32(len(p.stop))
	if p.status.StartTime == nil { // it was suspended
		p.status.StartTime = v.stamp()
	}
	if !batch.JobIs(v.job, end.Type) {
		p.status.Conditions = append(p.status.Conditions, *end)
		return
	}
	u := p.status.UncountedTerminatedPods
	if len(t.active)+t.tracked+len(u.Succeeded)+len(u.Failed) > 0 || t.terminating > 0 {
		return
	}
	if end.Type == batchv1.JobFailureTarget {
		p.status.Conditions = append(p.status.Conditions, *v.condition(batchv1.JobFailed, end.Reason, end.Message))
		p.events = append(p.events, event{corev1.EventTypeWarning, end.Reason, end.Message})
		return
	}
	p.status.Conditions = append(p.status.Conditions, *v.condition(batchv1.JobComplete, end.Reason, end.Message))
	p.status.CompletionTime = v.stamp()
	if n := v.job.Spec.Completions; n != nil && p.status.Succeeded > *n {
		p.events = append(p.events, event{corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached"})
	}
	p.events = append(p.events, event{corev1.EventTypeNormal, "Completed", "Job completed"})
}

func ready(pods []*corev1.Pod) (n int32) {
	for _, p := range pods {
		if core.PodReady(p) {
			n++
		}
	}
	return n
}
