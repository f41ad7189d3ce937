package daemonset

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/workload"
)

// spread is a DaemonSet as it is on the nodes.
type spread struct {
	ds     *appsv1.DaemonSet
	places []place // by name
	hash   string  // that pods of the present template carry
	now    time.Time
	// held is how much longer a failed pod on a node is left alone; 0: it may go.
	held func(node string) time.Duration
}

// place is a node with the set's pods that run there or wait for it.
type place struct {
	name        string
	gone        bool // there is no such node (any more)
	runs, stays bool // as fit.on says
	pods        []*corev1.Pod
}

// step is what to do next.
type step struct {
	create []string // nodes to make a pod for
	remove []removal
	wait   time.Duration // look again then; 0: nothing to wait for
}

// removal is a pod that goes; finished says that this is because it has ended.
type removal struct {
	pod      *corev1.Pod
	finished bool
}

// newSpread sorts pods by the nodes that they are for. Those that have ended and
// are being deleted, or are for no node, count nowhere.
func newSpread(ds *appsv1.DaemonSet, nodes []*corev1.Node, pods []*corev1.Pod) *spread {
	s := &spread{ds: ds}
	by := map[string][]*corev1.Pod{}
	for _, p := range pods {
		if node := nodeOf(p); node != "" && !(p.DeletionTimestamp != nil && core.PodTerminal(p)) {
			by[node] = append(by[node], p)
		}
	}
	fits := newFit(&ds.Spec.Template)
	for _, n := range nodes {
		p := place{name: n.Name, pods: by[n.Name]}
		p.runs, p.stays = fits.on(n)
		s.places = append(s.places, p)
		delete(by, n.Name)
	}
	for name, pods := range by {
		s.places = append(s.places, place{name: name, gone: true, pods: pods})
	}
	slices.SortFunc(s.places, func(a, b place) int { return cmp.Compare(a.name, b.name) })
	for _, p := range s.places {
		slices.SortFunc(p.pods, older)
	}
	return s
}

// older orders pods on a node: bound ones first, then by age.
func older(a, b *corev1.Pod) int {
	waits := func(p *corev1.Pod) int {
		if p.Spec.NodeName == "" {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(waits(a), waits(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// next is what to do: see to it first that each node has the pods that it should
// have, whatever their template, and then that they get the present one.
func (s *spread) next() step {
	st := s.keep()
	if len(st.create)+len(st.remove) > 0 || s.ds.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return st
	}
	var update step
	if unavailable, surge := s.limits(); surge == 0 {
		update = s.replace(unavailable)
	} else {
		update = s.surge(surge)
	}
	update.wait = st.wait
	return update
}

// keep creates missing pods and removes those that should not be there.
func (s *spread) keep() step {
	var st step
	for i := range s.places {
		p := &s.places[i]
		switch {
		case p.gone:
			for _, pod := range p.pods {
				if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil { // nothing binds it any more
					st.remove = append(st.remove, removal{pod: pod})
				}
			}
		case p.runs && len(p.pods) == 0:
			st.create = append(st.create, p.name)
		case p.stays:
			s.keepOn(p, &st)
		default:
			for _, pod := range p.pods {
				if pod.DeletionTimestamp == nil {
					st.remove = append(st.remove, removal{pod: pod})
				}
			}
		}
	}
	return st
}

// keepOn keeps one pod on a node, or two while one takes over from the other.
func (s *spread) keepOn(p *place, st *step) {
	var kept []*corev1.Pod
	for _, pod := range p.pods {
		switch {
		case pod.DeletionTimestamp != nil:
		case pod.Status.Phase == corev1.PodFailed:
			if wait := s.held(p.name); wait > 0 {
				st.wait = soonest(st.wait, wait)
				continue
			}
			st.remove = append(st.remove, removal{pod, true})
		case pod.Status.Phase == corev1.PodSucceeded:
			st.remove = append(st.remove, removal{pod, true})
		default:
			kept = append(kept, pod)
		}
	}
	if _, surge := s.limits(); surge == 0 {
		for _, pod := range kept[min(1, len(kept)):] {
			st.remove = append(st.remove, removal{pod: pod})
		}
		return
	}
	if len(kept) == 0 && p.runs {
		st.create = append(st.create, p.name)
	}
	if len(kept) < 2 {
		return
	}
	var fresh, old *corev1.Pod
	for _, pod := range kept {
		first := &old
		if s.fresh(pod) {
			first = &fresh
		}
		if *first == nil {
			*first = pod
		} else {
			st.remove = append(st.remove, removal{pod: pod})
		}
	}
	if fresh != nil && old != nil && (!core.PodReady(old) || s.available(fresh)) {
		st.remove = append(st.remove, removal{pod: old})
	}
}

func soonest(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// fresh says that a pod is of the present template.
func (s *spread) fresh(pod *corev1.Pod) bool {
	return pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == s.hash
}

func (s *spread) available(pod *corev1.Pod) bool {
	return core.PodAvailable(pod, s.ds.Spec.MinReadySeconds, s.now)
}

// limits resolves maxUnavailable and maxSurge, both rounded up. One of them is
// not 0, or nothing could move.
func (s *spread) limits() (unavailable, surge int32) {
	u := s.ds.Spec.UpdateStrategy
	if u.Type != appsv1.RollingUpdateDaemonSetStrategyType || u.RollingUpdate == nil {
		return 0, 0
	}
	desired := int32(0)
	for _, p := range s.places {
		if p.runs {
			desired++
		}
	}
	unavailable = workload.RoundedUp(u.RollingUpdate.MaxUnavailable, desired)
	surge = workload.RoundedUp(u.RollingUpdate.MaxSurge, desired)
	if unavailable == 0 && surge == 0 {
		unavailable = 1
	}
	return unavailable, surge
}

// pair are the pod of the present template on a node and the one of another; ok
// is false if there are more.
func (s *spread) pair(p *place) (fresh, old *corev1.Pod, ok bool) {
	for _, pod := range p.pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		at := &old
		if s.fresh(pod) {
			at = &fresh
		}
		if *at != nil {
			return nil, nil, false
		}
		*at = pod
	}
	return fresh, old, true
}

// replace removes pods of other templates: all that are not available, and of
// the others as many as may be unavailable at once. Missing pods are made then.
func (s *spread) replace(unavailable int32) step {
	var st step
	var candidates []*corev1.Pod
	for i := range s.places {
		p := &s.places[i]
		if !p.runs && len(p.pods) == 0 {
			continue
		}
		fresh, old, ok := s.pair(p)
		switch {
		case !ok || (fresh == nil) == (old == nil): // it is being seen to
			unavailable--
		case fresh != nil:
			if !s.available(fresh) {
				unavailable--
			}
		case !s.available(old):
			st.remove = append(st.remove, removal{pod: old})
			unavailable--
		default:
			candidates = append(candidates, old)
		}
	}
	for _, pod := range candidates[:max(0, min(int(unavailable), len(candidates)))] {
		st.remove = append(st.remove, removal{pod: pod})
	}
	return st
}

// surge makes pods of the present template beside old ones: wherever the old one
// is not available, and on as many other nodes as may have two. The old one goes
// when the new one is available; where it has no successor, when there is one
// more elsewhere than there are nodes to run on.
func (s *spread) surge(surge int32) step {
	var st step
	var candidates []string
	var left []*corev1.Pod // available, where none is to run any more
	spare := 0
	for i := range s.places {
		p := &s.places[i]
		fresh, old, ok := s.pair(p)
		if p.runs {
			spare--
		}
		if serves := cmp.Or(old, fresh); serves != nil && !p.gone && s.available(serves) {
			spare++
		}
		switch {
		case !ok:
			surge--
		case old == nil || p.gone:
		case fresh == nil && !p.runs && s.available(old):
			left = append(left, old)
		case fresh == nil && !p.runs:
			st.remove = append(st.remove, removal{pod: old})
		case fresh == nil && !s.available(old):
			st.create = append(st.create, p.name)
		case fresh == nil:
			candidates = append(candidates, p.name)
		case !s.available(fresh):
			surge--
		default:
			st.remove = append(st.remove, removal{pod: old})
		}
	}
	for _, pod := range left[:max(0, min(spare, len(left)))] {
		st.remove = append(st.remove, removal{pod: pod})
	}
	st.create = append(st.create, candidates[:max(0, min(int(surge), len(candidates)))]...)
	return st
}
