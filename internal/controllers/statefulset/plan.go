package statefulset

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/workload"
)

// burst is how many pods one reconcile creates at the most.
const burst = 500

// view is a set with its pods and claims as they are.
type view struct {
	set             *appsv1.StatefulSet
	pods            map[int]*corev1.Pod // by number
	current, update string              // revisions, by name
	templates       map[string]*corev1.PodTemplateSpec
	claim           func(name string) *corev1.PersistentVolumeClaim
	now             time.Time
}

// plan is what to do next.
type plan struct {
	care    []care        // comes first: pods that lack something of their own
	excess  []*corev1.Pod // are too many: they make room for those that are to be made
	create  []int         // numbers to make a pod for, lowest first
	replace []*corev1.Pod // have ended, and go for that
	remove  []*corev1.Pod // go if all else could be done
}

// care is what a pod lacks of what is its own.
type care struct {
	name      string
	number    int
	make      bool                            // some of its claims are not there
	claims    []*corev1.PersistentVolumeClaim // as their owners should be
	contested []string                        // claims that somebody else controls
	pod       *corev1.Pod                     // as it should be; nil: it is
	tell      bool                            // people are told when it is done
}

func newView(set *appsv1.StatefulSet, pods []*corev1.Pod) *view {
	v := &view{set: set, pods: map[int]*corev1.Pod{}}
	for _, p := range pods {
		if n, ok := numberOf(set, p.Name); ok {
			v.pods[n] = p
		}
	}
	return v
}

// ordered says that pods are made and removed one after the other, each when those
// before it are available.
func (v *view) ordered() bool { return v.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement }

// next is what to do: see to the pods that there should be, lowest number first; if
// nothing is to be waited for, remove those that are too many, highest first; and
// then replace those of another revision, highest first.
func (v *view) next() plan {
	var p plan
	kept := v.keep(&p)
	if !kept && v.ordered() {
		return p
	}
	if v.shrink(&p) && kept && v.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		if v.ordered() {
			v.roll(&p)
		} else {
			v.rollParallel(&p)
		}
	}
	return p
}

// keep says whether to go on.
func (v *view) keep(p *plan) bool {
	for n := first(v.set); n < past(v.set); n++ {
		if !v.keepOne(n, p) && v.ordered() {
			return false
		}
		if len(p.create) == burst {
			return false
		}
	}
	return true
}

// keepOne says whether the pod of a number is as it should be.
func (v *view) keepOne(n int, p *plan) bool {
	pod := v.pods[n]
	switch {
	case pod == nil:
		if !v.stale(n) {
			p.create = append(p.create, n)
		}
		return false
	case core.PodTerminal(pod):
		if pod.DeletionTimestamp == nil {
			p.replace = append(p.replace, pod)
		}
		return false // its successor is made when it is gone
	}
	well, waits := v.well(pod), pod.Status.Phase == corev1.PodPending
	if v.ordered() && !well && !waits {
		return false // it is waited for
	}
	c := v.caring(pod, n)
	c.make = waits && v.lacks(n)
	if well || !v.ordered() {
		c.pod, c.tell = mended(v.set, pod, n), true
	}
	p.add(c)
	return well
}

// add notes c if there is anything to do.
func (p *plan) add(c care) {
	if c.make || c.pod != nil || len(c.claims)+len(c.contested) > 0 {
		p.care = append(p.care, c)
	}
}

// stale says that a claim of a number goes with the last pod that had it: the next
// pod waits, so that it gets a claim of its own.
func (v *view) stale(n int) bool {
	if _, withPod := retention(v.set); !withPod {
		return false
	}
	k := keeper{set: v.set, pod: podName(v.set, n)}
	for c := range v.claimsOf(n) {
		if c != nil && slices.ContainsFunc(c.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.Kind == "Pod" && k.ours(&ref) }) {
			return true
		}
	}
	return false
}

// lacks says that a claim of a number is not there.
func (v *view) lacks(n int) bool {
	for c := range v.claimsOf(n) {
		if c == nil {
			return true
		}
	}
	return false
}

// claimsOf are the claims of a number; nil for one that is not there.
func (v *view) claimsOf(n int) func(yield func(*corev1.PersistentVolumeClaim) bool) {
	return func(yield func(*corev1.PersistentVolumeClaim) bool) {
		for i := range v.set.Spec.VolumeClaimTemplates {
			if !yield(v.claim(claimName(v.set, v.set.Spec.VolumeClaimTemplates[i].Name, n))) {
				return
			}
		}
	}
}

// caring is what the claims of a pod lack in owners.
func (v *view) caring(pod *corev1.Pod, n int) care {
	c := care{name: pod.Name, number: n}
	k := keeper{set: v.set, pod: pod.Name, uid: pod.UID, excess: n < first(v.set) || n >= past(v.set)}
	for claim := range v.claimsOf(n) {
		if claim == nil {
			continue
		}
		as, contested := k.owned(claim)
		if as != nil {
			c.claims = append(c.claims, as)
			if contested {
				c.contested = append(c.contested, claim.Name)
			}
		}
	}
	return c
}

// shrink says whether to go on. A pod goes when its claims know whether they go
// with it. One by one, a pod that is not available is waited for, unless it is the
// lowest of those, or has ended: nothing would help it.
func (v *view) shrink(p *plan) bool {
	var excess []int
	for n := range v.pods {
		if n < first(v.set) || n >= past(v.set) {
			excess = append(excess, n)
		}
	}
	slices.SortFunc(excess, func(a, b int) int { return cmp.Compare(b, a) })
	var lowest *corev1.Pod // of those that are not available
	for _, n := range excess {
		pod := v.pods[n]
		p.add(v.caring(pod, n))
		if v.unavailable(pod) {
			lowest = pod
		}
	}
	for _, n := range excess {
		pod := v.pods[n]
		switch {
		case pod.DeletionTimestamp != nil:
			if v.ordered() {
				return false
			}
			continue
		case v.ordered() && pod != lowest && !v.well(pod) && !core.PodTerminal(pod):
			return false
		}
		p.excess = append(p.excess, pod)
		if v.ordered() {
			return false
		}
	}
	return true
}

// roll removes pods of other revisions. All pods are available: it is asked for
// when there is nothing else to wait for.
func (v *view) roll(p *plan) {
	budget := v.maxUnavailable()
	for n := past(v.set) - 1; n >= v.partition() && budget > 0; n-- {
		if v.old(v.pods[n]) {
			p.remove = append(p.remove, v.pods[n])
			budget--
		}
	}
}

// rollParallel removes pods of other revisions. Those that are not available go at
// once: nothing is lost with them, and what ails them may be their revision. Of the
// others as many go as may be unavailable, less all that are.
func (v *view) rollParallel(p *plan) {
	var broken, sound []*corev1.Pod
	budget := v.maxUnavailable()
	for n := past(v.set) - 1; n >= first(v.set); n-- {
		pod := v.pods[n]
		if pod == nil || v.unavailable(pod) {
			budget--
		}
		if n < v.partition() || pod == nil || core.PodTerminal(pod) || !v.old(pod) {
			continue
		}
		if v.unavailable(pod) {
			broken = append(broken, pod)
		} else {
			sound = append(sound, pod)
		}
	}
	p.remove = append(p.remove, broken...)
	p.remove = append(p.remove, sound[:min(len(sound), max(budget, 0))]...)
}

// old says that a pod is of another revision than the newest, and not about to go.
func (v *view) old(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Labels[appsv1.StatefulSetRevisionLabel] != v.update
}

// well says that a pod keeps nobody waiting.
func (v *view) well(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && !v.unavailable(pod)
}

func (v *view) unavailable(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || !core.PodAvailable(pod, v.set.Spec.MinReadySeconds, v.now)
}

// partition is the lowest number that gets the newest revision.
func (v *view) partition() int {
	if r := v.set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		return first(v.set) + int(ptr.Deref(r.Partition, 0))
	}
	return first(v.set)
}

// maxUnavailable is rounded down, but no less than one.
func (v *view) maxUnavailable() int {
	unavailable := ptr.To(intstr.FromInt32(1))
	if r := v.set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.MaxUnavailable != nil {
		unavailable = r.MaxUnavailable
	}
	return max(1, int(workload.RoundedDown(unavailable, int32(replicas(v.set)))))
}

// revision is that of a pod that is made for a number: below the partition the one
// that the set had before.
func (v *view) revision(n int) string {
	if v.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && n < v.partition() {
		return v.current
	}
	return v.update
}
