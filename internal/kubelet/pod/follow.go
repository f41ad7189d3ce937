package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Told is a pod as its actor knows it, with the status that the API may see only later; nobody may change it.
type Told struct {
	Pod  *v1.Pod
	Gone bool // it has left the API, or nothing is left of it
}

// follower is who is told of the pods of a node.
type follower struct{ tell func(Told) }

// Follow has f told of every pod: of those that there are before it returns, and then, until stop is called, of each
// whenever it may have changed. f is called by many goroutines, for one pod by one at a time, and must not block.
func (s *Set) Follow(f func(Told)) (stop func()) {
	me := &follower{f}
	s.mu.Lock()
	s.mu.followers = append(slices.Clip(s.mu.followers), me)
	s.mu.Unlock()
	s.followed.Add(1)
	ask(s, func(x *Actor) bool { x.tell(); return true })
	return func() {
		s.followed.Add(-1)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.followers = slices.DeleteFunc(slices.Clone(s.mu.followers), func(one *follower) bool { return one == me })
	}
}

// Known are the pods of the node that have not left the API, as their actors know them. Nobody may change them.
func (s *Set) Known() []*v1.Pod {
	return slices.DeleteFunc(ask(s, (*Actor).shown), func(p *v1.Pod) bool { return p == nil })
}

// shown is the pod as its last step has made it; nil: it has left the API.
func (x *Actor) shown() *v1.Pod {
	switch {
	case x.d.Gone:
		return nil
	case x.status.Phase == "": // its first step is yet to come
		return x.d.Pod
	}
	pod := *x.d.Pod
	pod.Status = x.status
	return &pod
}

// tell tells followers how the pod is now.
func (x *Actor) tell() {
	if x.s.followed.Load() == 0 {
		return
	}
	if pod := x.shown(); pod != nil {
		x.s.tell(Told{Pod: pod})
		return
	}
	x.s.tell(Told{Pod: x.d.Pod, Gone: true})
}

func (s *Set) tell(t Told) {
	s.mu.Lock()
	followers := s.mu.followers // copied when changed
	s.mu.Unlock()
	for _, f := range followers {
		f.tell(t)
	}
}
