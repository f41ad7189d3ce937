package podstep

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// longestDrain is how long a pod's end waits at the most for what is sent to it to cease. Half of
// the grace period stays the containers' in any case.
const longestDrain = 5 * time.Second

// drainTells is how much longer it may take to tell that the time is over: what was still sent to the pod is told
// before its containers end, and with them perhaps the pod.
const drainTells = 100 * time.Millisecond

// drains reports whether what is sent to the pod ceases before its containers are told to end:
// the API shows that it is being deleted, and those who send follow that. It does not show so of
// a static pod before that has ended, nor of one that is evicted or has failed.
func (s *step) drains() bool {
	return s.o.Drain.Told && s.ending.deleted && s.o.Mirror == nil
}

// draining has it found out whether anything new is still sent to the pod, and reports whether
// the end of its containers waits for that.
func (s *step) draining() bool {
	if !s.drains() || s.o.Drain.Over {
		return false
	}
	since := s.o.EndingSince
	if since.IsZero() {
		since = s.now
	}
	grace := time.Duration(s.graceSeconds(s.ending.grace)) * time.Second
	long := min(longestDrain, grace/2)
	until := since.Add(long)
	if latest := until.Add(drainTells); long > 0 && s.now.Before(latest) {
		s.do(Action{Op: DrainPod, Grace: max(until.Sub(s.now), 0)})
		s.wakeAt(latest)
		return true
	}
	return false
}

// endApp ends an app container that runs: at once, or, if what is sent to the pod is to cease
// first, when it has. Its preStop hook runs meanwhile.
func (s *step) endApp(c *Container, draining bool) {
	message := "Stopping container " + c.Name
	if !s.drains() {
		s.kill(c, s.ending.grace, KilledForEnd, message)
		return
	}
	hooked := false
	if spec, _ := s.spec(c.Name); spec != nil && hasPreStop(spec) {
		hooked = s.o.Hooked[c.ID] || s.doing(Action{Op: PreStop, ID: c.ID})
		if s.hook(spec, c, message) {
			return
		}
	}
	if hooked {
		message = "" // it was told with the hook
	}
	if !draining {
		s.kill(c, s.graceLeft(c), KilledForEnd, message)
	}
}

func hasPreStop(spec *v1.Container) bool {
	return spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil
}
